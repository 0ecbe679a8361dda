//! The auction site of the Nexmark benchmark, built column by column. Of every 50 events 1 is a
//! person, 3 are auctions and 46 are bids; half of the bids go to a hot auction and three quarters
//! come from a hot bidder.
//!
//! Every value is a pure function of seed and event number, and `date_time` is
//! 2026-01-01T00:00:00Z, or `start_ms`, plus the event number over `events_per_second` (10,000 when that
//! is 0), at any pace and after any restart.

use crate::format::{pick, value};
use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, StringBuilder};
use arrow::datatypes::SchemaRef;
use std::fmt::Write;
use std::sync::Arc;
use weir_kernel::error::Error;
use weir_planner::connector::{DecodeColumn, NexmarkTable};
use weir_planner::error::Class;
use weir_planner::schema::{ColumnType, Schema};
use weir_planner::time::TimeUnit;

/// Events in a round.
const GROUP: u64 = 50;
/// Auctions in a round.
const AUCTIONS: u64 = 3;
/// Auctions open at once.
const IN_FLIGHT: u64 = 100;
/// People active at once.
const ACTIVE: u64 = 1000;
/// First id of people and auctions.
const FIRST_ID: i64 = 1000;
/// 2026-01-01T00:00:00Z.
pub const BASE_MS: i64 = 1_767_225_600_000;
/// Event-time rate without a pace.
const UNPACED_PER_SECOND: u64 = 10_000;
const STATES: [&str; 6] = ["AZ", "CA", "ID", "OR", "WA", "WY"];
const CITIES: [&str; 10] =
    ["Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne"];
const HOT_CHANNELS: [&str; 4] = ["Google", "Facebook", "Baidu", "Apple"];
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz012345";

/// One of the three tables, with the columns that are used.
pub struct Nexmark {
    table: NexmarkTable,
    seed: u64,
    per_second: u64,
    /// Event time of event 0.
    start_ms: i64,
    columns: Vec<(Field, ColumnType)>,
    schema: SchemaRef,
}

/// Every column of every table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Id,
    Name,
    EmailAddress,
    CreditCard,
    City,
    State,
    ItemName,
    Description,
    InitialBid,
    Reserve,
    Expires,
    Seller,
    Category,
    Auction,
    Bidder,
    Price,
    Channel,
    Url,
    DateTime,
    Extra,
}

const PERSON: [(&str, Field); 8] = [
    ("id", Field::Id),
    ("name", Field::Name),
    ("email_address", Field::EmailAddress),
    ("credit_card", Field::CreditCard),
    ("city", Field::City),
    ("state", Field::State),
    ("date_time", Field::DateTime),
    ("extra", Field::Extra),
];
const AUCTION: [(&str, Field); 10] = [
    ("id", Field::Id),
    ("item_name", Field::ItemName),
    ("description", Field::Description),
    ("initial_bid", Field::InitialBid),
    ("reserve", Field::Reserve),
    ("date_time", Field::DateTime),
    ("expires", Field::Expires),
    ("seller", Field::Seller),
    ("category", Field::Category),
    ("extra", Field::Extra),
];
const BID: [(&str, Field); 7] = [
    ("auction", Field::Auction),
    ("bidder", Field::Bidder),
    ("price", Field::Price),
    ("channel", Field::Channel),
    ("url", Field::Url),
    ("date_time", Field::DateTime),
    ("extra", Field::Extra),
];

fn fields(table: NexmarkTable) -> &'static [(&'static str, Field)] {
    match table {
        NexmarkTable::Person => &PERSON,
        NexmarkTable::Auction => &AUCTION,
        NexmarkTable::Bid => &BID,
    }
}

/// What a column holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Number,
    Time,
    Text,
}

fn kind(field: Field) -> Kind {
    match field {
        Field::Id | Field::InitialBid | Field::Reserve | Field::Seller | Field::Category => Kind::Number,
        Field::Auction | Field::Bidder | Field::Price => Kind::Number,
        Field::DateTime | Field::Expires => Kind::Time,
        Field::Name | Field::EmailAddress | Field::CreditCard | Field::City | Field::State => Kind::Text,
        Field::ItemName | Field::Description | Field::Channel | Field::Url | Field::Extra => Kind::Text,
    }
}

impl Nexmark {
    /// Columns are found by name, spelled `date_time` or `dateTime`.
    ///
    /// Errors: `User` for a column that the table does not have, or not with that type.
    pub fn new(
        table: NexmarkTable,
        seed: u64,
        per_second: u64,
        start_ms: i64,
        columns: &[DecodeColumn],
        used: &[String],
    ) -> Result<Self, Error> {
        let all = fields(table);
        let resolve = |column: &DecodeColumn| {
            let name = &column.column.name;
            let Some((_, field)) = all.iter().find(|(own, _)| own == name || camel(own) == *name) else {
                let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
                let message = format!("generate: the nexmark table has no column '{name}'; it has {}", names.join(", "));
                return Err(Error::new(Class::User, message));
            };
            let (fits, wanted) = match kind(*field) {
                Kind::Number => (column.column.ty == ColumnType::BigInt, "BIGINT"),
                Kind::Time => (matches!(column.column.ty, ColumnType::Timestamp { .. }), "TIMESTAMP(3)"),
                Kind::Text => (column.column.ty == ColumnType::Text, "TEXT"),
            };
            if !fits {
                let message = format!("generate: nexmark column '{name}' is {wanted}, not {}", column.column.ty);
                return Err(Error::new(Class::User, message));
            }
            Ok((*field, column.column.ty))
        };
        // All declared columns are checked, also those that the job does not use.
        columns.iter().map(resolve).collect::<Result<Vec<_>, Error>>()?;
        let picked = pick(columns, used)?;
        let schema = Schema(picked.iter().map(|column| column.column.clone()).collect());
        Ok(Nexmark {
            table,
            seed,
            per_second: if per_second == 0 { UNPACED_PER_SECOND } else { per_second },
            start_ms,
            columns: picked.into_iter().map(resolve).collect::<Result<_, Error>>()?,
            schema: Arc::new(schema.to_arrow()),
        })
    }

    /// First event of a round that is of this table, and how many follow.
    fn place(&self) -> (u64, u64) {
        match self.table {
            NexmarkTable::Person => (0, 1),
            NexmarkTable::Auction => (1, AUCTIONS),
            NexmarkTable::Bid => (1 + AUCTIONS, GROUP - 1 - AUCTIONS),
        }
    }

    /// Event number of a row of this table.
    pub fn event(&self, row: u64) -> u64 {
        let (first, width) = self.place();
        (row / width).saturating_mul(GROUP).saturating_add(first + row % width)
    }

    /// Rows of this table among the events below `event`.
    pub fn rows_before(&self, event: u64) -> u64 {
        let (first, width) = self.place();
        (event / GROUP).saturating_mul(width).saturating_add((event % GROUP).saturating_sub(first).min(width))
    }

    /// Events whose time is not after this, ms.
    pub fn events_until(&self, time_ms: i64) -> u64 {
        let Ok(after) = u64::try_from(time_ms.saturating_sub(self.start_ms)) else { return 0 };
        let events = ((u128::from(after) + 1) * u128::from(self.per_second)).div_ceil(1_000);
        u64::try_from(events).unwrap_or(u64::MAX)
    }

    /// `count` rows from row `first`.
    ///
    /// Errors: `User` when a time leaves its column's range.
    pub fn rows(&self, first: u64, count: u64) -> Result<RecordBatch, Error> {
        let events: Vec<u64> = (first..first.saturating_add(count)).map(|row| self.event(row)).collect();
        let build = |(field, ty): &(Field, ColumnType)| -> Result<ArrayRef, Error> {
            Ok(match (kind(*field), ty) {
                (Kind::Number, _) => Arc::new(events.iter().map(|&n| self.number(*field, n)).collect::<Int64Array>()),
                (Kind::Text, _) => self.texts(*field, &events),
                (Kind::Time, ty) => self.times(*field, &events, *ty)?,
            })
        };
        let arrays = self.columns.iter().map(build).collect::<Result<Vec<_>, Error>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(events.len()));
        RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)
            .map_err(|e| Error::because(Class::Bug, "generated columns do not make a batch", e))
    }

    /// The event number stirred, one independent stream for each salt (the finaliser of splitmix64).
    fn mix(&self, n: u64, salt: u64) -> u64 {
        let start = self.seed.wrapping_mul(0xD134_2543_DE82_EF95).wrapping_add(salt.wrapping_mul(0x2545_F491_4F6C_DD1D));
        let z = n.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(start.wrapping_add(1));
        let z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    fn below(&self, n: u64, salt: u64, limit: u64) -> u64 {
        self.mix(n, salt) % limit
    }

    /// Between 1.00 and a million, spread evenly over the powers of ten, in cents.
    fn price(&self, n: u64, salt: u64) -> i64 {
        let h = self.mix(n, salt);
        let power = u32::try_from(h % 6).unwrap_or(0);
        signed((100 + (h >> 8) % 900) * 10u64.pow(power))
    }

    fn number(&self, field: Field, n: u64) -> i64 {
        let round = n / GROUP;
        match field {
            Field::Id => match self.table {
                NexmarkTable::Person => FIRST_ID + signed(round),
                NexmarkTable::Auction | NexmarkTable::Bid => FIRST_ID + signed(round * AUCTIONS + (n % GROUP).saturating_sub(1)),
            },
            Field::InitialBid => self.price(n, 13),
            Field::Reserve => self.price(n, 13) + self.price(n, 14),
            Field::Category => 10 + signed(self.below(n, 16, 5)),
            Field::Seller => {
                let hot = self.below(n, 11, 4) > 0;
                FIRST_ID + signed(if hot { round / 100 * 100 } else { round.saturating_sub(self.below(n, 12, ACTIVE)) })
            }
            Field::Auction => {
                let last = round * AUCTIONS + AUCTIONS - 1;
                let hot = self.below(n, 21, 2) > 0;
                FIRST_ID + signed(if hot { last / 100 * 100 } else { last.saturating_sub(self.below(n, 22, IN_FLIGHT)) })
            }
            Field::Bidder => {
                let hot = self.below(n, 23, 4) > 0;
                FIRST_ID + signed(if hot { round / 100 * 100 + 1 } else { round.saturating_sub(self.below(n, 24, ACTIVE)) })
            }
            Field::Price => self.price(n, 28),
            Field::DateTime | Field::Expires => self.time_ms(field, n),
            Field::Name | Field::EmailAddress | Field::CreditCard | Field::City | Field::State => 0,
            Field::ItemName | Field::Description | Field::Channel | Field::Url | Field::Extra => 0,
        }
    }

    fn time_ms(&self, field: Field, n: u64) -> i64 {
        let elapsed = u128::from(n) * 1000 / u128::from(self.per_second);
        let now = self.start_ms.saturating_add(i64::try_from(elapsed).unwrap_or(i64::MAX));
        if field == Field::Expires {
            let longest = 2 * IN_FLIGHT * GROUP / AUCTIONS * 1000 / self.per_second;
            return now.saturating_add(1 + signed(self.below(n, 15, longest + 1)));
        }
        now
    }

    fn times(&self, field: Field, events: &[u64], ty: ColumnType) -> Result<ArrayRef, Error> {
        let ColumnType::Timestamp { unit, .. } = ty else {
            return Err(Error::new(Class::Bug, "a generated time has no time type"));
        };
        let convert = |&n: &u64| value::convert_unit(self.time_ms(field, n), TimeUnit::Millisecond, unit);
        let values: Option<Vec<i64>> = events.iter().map(convert).collect();
        let values = values.ok_or_else(|| Error::new(Class::User, format!("generate: a time is out of range for {ty}")))?;
        let data = Int64Array::from(values).into_data().into_builder().data_type(ty.to_arrow()).build();
        let data = data.map_err(|e| Error::because(Class::Bug, "generated times do not make an array", e))?;
        Ok(arrow::array::make_array(data))
    }

    fn texts(&self, field: Field, events: &[u64]) -> ArrayRef {
        let mut out = StringBuilder::with_capacity(events.len(), events.len() * 24);
        let mut text = String::new();
        for &n in events {
            text.clear();
            self.text(field, n, &mut text);
            out.append_value(&text);
        }
        Arc::new(out.finish())
    }

    fn text(&self, field: Field, n: u64, out: &mut String) {
        // Writing to a String cannot fail.
        match field {
            Field::Name => {
                self.letters(n, 100, 6, out);
                out.push(' ');
                self.letters(n, 200, 8, out);
            }
            Field::EmailAddress => {
                self.letters(n, 300, 8, out);
                out.push('@');
                self.letters(n, 400, 5, out);
                out.push_str(".com");
            }
            Field::CreditCard => {
                let part = |salt| 1000 + self.below(n, salt, 9000);
                let _ = write!(out, "{} {} {} {}", part(1), part(2), part(3), part(4));
            }
            Field::City => out.push_str(self.one_of(n, 5, &CITIES)),
            Field::State => out.push_str(self.one_of(n, 6, &STATES)),
            Field::ItemName => self.letters(n, 600, 12, out),
            Field::Description => self.letters(n, 700, 60, out),
            Field::Channel => match self.hot_channel(n) {
                Some(hot) => out.push_str(HOT_CHANNELS.get(hot).copied().unwrap_or_default()),
                None => {
                    let _ = write!(out, "channel-{}", self.below(n, 27, 10_000));
                }
            },
            Field::Url => {
                out.push_str("https://auction.example.com/");
                self.letters(n, 900, 5, out);
                let channel = self.hot_channel(n).map_or_else(|| self.below(n, 27, 10_000), |hot| hot as u64);
                let _ = write!(out, "/item.htm?query=1&channel_id={channel}");
            }
            Field::Extra => match self.table {
                NexmarkTable::Person => self.letters(n, 500, 40, out),
                NexmarkTable::Auction => self.letters(n, 800, 40, out),
                NexmarkTable::Bid => self.letters(n, 1000, 20, out),
            },
            Field::Id | Field::InitialBid | Field::Reserve | Field::Seller | Field::Category => {}
            Field::Auction | Field::Bidder | Field::Price | Field::DateTime | Field::Expires => {}
        }
    }

    fn hot_channel(&self, n: u64) -> Option<usize> {
        (self.below(n, 25, 2) > 0).then(|| usize::try_from(self.below(n, 26, 4)).unwrap_or(0))
    }

    fn one_of(&self, n: u64, salt: u64, list: &[&'static str]) -> &'static str {
        usize::try_from(self.below(n, salt, list.len() as u64)).ok().and_then(|i| list.get(i)).copied().unwrap_or_default()
    }

    /// `width` letters, five bits of hash each, twelve from one hash.
    fn letters(&self, n: u64, salt: u64, width: u64, out: &mut String) {
        for start in (0..width).step_by(12) {
            let mut h = self.mix(n, salt + start);
            for _ in start..width.min(start + 12) {
                let letter = LETTERS.get((h & 31) as usize).copied().unwrap_or(b'a');
                out.push(char::from(letter));
                h >>= 5;
            }
        }
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// `date_time` as `dateTime`.
fn camel(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut raise = false;
    for c in name.chars() {
        if c == '_' {
            raise = true;
        } else {
            out.push(if raise { c.to_ascii_uppercase() } else { c });
            raise = false;
        }
    }
    out
}
