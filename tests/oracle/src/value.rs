//! Values of one column, with the order of SQL: NULL is one value and the greatest, so is NaN among
//! floats, and minus zero is zero.

use std::cmp::Ordering;

/// A value, NULL among them. A column has values of one kind.
#[derive(Clone, Debug)]
pub enum Value {
    /// NULL.
    Null,
    /// BOOLEAN.
    Boolean(bool),
    /// SMALLINT, INTEGER, BIGINT.
    Int(i64),
    /// REAL.
    Real(f32),
    /// DOUBLE.
    Double(f64),
    /// DECIMAL: digits without the point, and how many stand after it.
    Decimal(i128, u8),
    /// TEXT.
    Text(String),
    /// TIMESTAMP, ms since 1970.
    Time(i64),
}

impl Value {
    /// Whether it is NULL.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    fn kind(&self) -> u8 {
        match self {
            Value::Boolean(_) => 0,
            Value::Int(_) => 1,
            Value::Real(_) => 2,
            Value::Double(_) => 3,
            Value::Decimal(_, _) => 4,
            Value::Text(_) => 5,
            Value::Time(_) => 6,
            Value::Null => 7,
        }
    }

    /// Equal but for what summing in another order may change of a float.
    pub fn is_near(&self, other: &Value) -> bool {
        let near = |a: f64, b: f64, by: f64| (a.is_nan() && b.is_nan()) || a == b || (a - b).abs() <= by * a.abs().max(b.abs()).max(1.0);
        match (self, other) {
            (Value::Double(a), Value::Double(b)) => near(*a, *b, 1e-9),
            (Value::Real(a), Value::Real(b)) => near(f64::from(*a), f64::from(*b), 1e-6),
            _ => self.kind() == other.kind() && self == other,
        }
    }
}

fn floats(a: f64, b: f64) -> Ordering {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) if a < b => Ordering::Less,
        (false, false) if a > b => Ordering::Greater,
        (false, false) => Ordering::Equal,
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Value::Boolean(a), Value::Boolean(b)) => a.cmp(b),
            (Value::Int(a), Value::Int(b)) | (Value::Time(a), Value::Time(b)) => a.cmp(b),
            (Value::Real(a), Value::Real(b)) => floats(f64::from(*a), f64::from(*b)),
            (Value::Double(a), Value::Double(b)) => floats(*a, *b),
            (Value::Decimal(a, x), Value::Decimal(b, y)) => {
                let common = (*x).max(*y);
                let scaled = |digits: i128, scale: u8| digits * 10_i128.pow(u32::from(common - scale));
                scaled(*a, *x).cmp(&scaled(*b, *y))
            }
            (Value::Text(a), Value::Text(b)) => a.cmp(b),
            _ => self.kind().cmp(&other.kind()),
        }
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Value {}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// `=`
    Equal,
    /// `<`
    Less,
    /// `>`
    Greater,
}

/// A column, or an aggregate, compared with a constant; NULL compares to unknown, which is not true.
#[derive(Clone, Debug)]
pub struct Condition {
    /// Which, by position.
    pub column: usize,
    /// How.
    pub compare: Compare,
    /// With what.
    pub constant: Value,
}

impl Condition {
    /// Whether it is true of these values.
    pub fn holds(&self, values: &[Value]) -> bool {
        let value = &values[self.column];
        if value.is_null() || self.constant.is_null() {
            return false;
        }
        let order = value.cmp(&self.constant);
        match self.compare {
            Compare::Equal => order == Ordering::Equal,
            Compare::Less => order == Ordering::Less,
            Compare::Greater => order == Ordering::Greater,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Value;

    /// E7: NaN is one value and the greatest, minus zero is zero, NULL is one value.
    #[test]
    fn floats_have_one_order() {
        let double = Value::Double;
        assert_eq!(double(f64::NAN), double(-f64::NAN));
        assert_eq!(double(-0.0), double(0.0));
        assert!(double(f64::NAN) > double(f64::INFINITY));
        assert!(Value::Null > double(f64::NAN));
        assert_eq!(Value::Null, Value::Null);
        assert_eq!(Value::Decimal(150, 2), Value::Decimal(15, 1));
        assert!(!Value::Null.is_near(&double(0.0)));
        assert!(double(1.0).is_near(&double(1.0 + 1e-12)) && !double(1.0).is_near(&double(1.001)));
    }
}
