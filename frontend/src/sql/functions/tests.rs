//! `docs/functions.md` is what the registry says: `WEIR_GOLDEN=write` writes it anew.

use super::{FUNCTIONS, result_type};
use datafusion::logical_expr::Volatility;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use weir_planner::expr::{Aggregate, AggregateFunction, Expr, Kind, Typed};
use weir_planner::plan::partial::state_columns;
use weir_planner::schema::ColumnType;
use weir_planner::time::TimeUnit;

const TYPES: [ColumnType; 11] = [
    ColumnType::Boolean,
    ColumnType::SmallInt,
    ColumnType::Integer,
    ColumnType::BigInt,
    ColumnType::Real,
    ColumnType::Double,
    ColumnType::Decimal { precision: 10, scale: 2 },
    ColumnType::Text,
    ColumnType::Bytea,
    ColumnType::Date,
    ColumnType::Timestamp { unit: TimeUnit::Millisecond, zoned: false },
];

const HEAD: &str = "# Functions

What a job may call, as the registry has it; a test keeps this page to it.

**stream-ok**: of single rows, without state. **bounded state**: so many bytes a group, whatever comes. **unbounded state**: keeps every value
of a group, so that the job needs `state.max_bytes`. **refused**: not in a job.

## Aggregates

`f(DISTINCT x)` takes every value once: equal as keys are, so that -0 is 0 and NaN is one value. It keeps the set of a group's values, whatever
the function: state grows with the different values, is counted by `state.max_bytes`, and each checkpoint writes the whole set of every group
that changed. Where it changes nothing (`max(DISTINCT x)`) there is no set. `count(DISTINCT a, b)` counts pairs without NULL.

`FILTER (WHERE …)` goes with all. `ORDER BY` in the call matters to `first_value`, `last_value` and `string_agg`: rows of equal order go by event
time, then by the value, so that the answer is the same in whatever order they came. NULLs are left out, but by `first_value` and `last_value`,
where `IGNORE NULLS` after the call leaves them out. Over no value all are NULL, but those that count.

Numbers: sums of integers and decimals are exact, and a result that its type cannot hold fails the job. Floats are added up in DOUBLE with
their lost digits kept; variance, covariance and regression by the steps of Welford and Chan. NaN is the greatest number and equal to itself;
an infinity or NaN makes a variance NaN. A sample of one value has no variance: NULL.

What is approximate: `approx_distinct` is off by some 2 % (HyperLogLog), whatever the order of the rows; the two percentiles (t-digest) by some
1 % of the way through the values, a little different in another order, and NaN is left out.

In two stages: parts of a group are put together before the shuffle (see [operate.md](operate.md)), without `DISTINCT`.

| aggregate | gives | state | in two stages |
| --- | --- | --- | --- |
";

fn typed(ty: ColumnType) -> Typed {
    Typed { expr: Expr::Column("x".to_owned()), ty, nullable: true }
}

/// How a call is written.
fn call(function: AggregateFunction) -> String {
    let name = function.name();
    match (function, function.kind()) {
        (AggregateFunction::Count, _) => "count(*), count(x)".to_owned(),
        (AggregateFunction::StringAgg, _) => "string_agg(t, ',')".to_owned(),
        (_, Kind::Pairs) => format!("{name}(y, x)"),
        _ if function.takes_constant() => format!("{name}(0.5) WITHIN GROUP (ORDER BY x)"),
        _ => format!("{name}(x)"),
    }
}

/// What the function gives for each type that it takes, equal results together.
fn gives(function: AggregateFunction) -> String {
    let second = if function == AggregateFunction::StringAgg { ColumnType::Text } else { ColumnType::Double };
    let pair = function.kind() == Kind::Pairs || function.takes_constant();
    let result = |ty| result_type(function, &if pair { vec![ty, second] } else { vec![ty] });
    let taken: Vec<(ColumnType, ColumnType)> = TYPES.into_iter().filter_map(|ty| Some((ty, result(ty)?))).collect();
    let listed = |types: Vec<ColumnType>| match types.as_slice() {
        all if all.len() == TYPES.len() => "anything".to_owned(),
        numbers if numbers.len() == 6 && numbers.contains(&ColumnType::Real) => "numbers".to_owned(),
        some => some.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    };
    let of =
        |wanted: &dyn Fn(&(ColumnType, ColumnType)) -> bool| listed(taken.iter().filter(|pair| wanted(pair)).map(|pair| pair.0).collect());
    if taken.iter().all(|(_, result)| *result == taken[0].1) {
        return format!("{} of {}", taken[0].1, of(&|_| true));
    }
    let mut told: Vec<String> = Vec::new();
    let same = of(&|(ty, result)| ty == result);
    if !same.is_empty() {
        told.push(format!("the type of {same}"));
    }
    for (_, result) in taken.iter().filter(|(ty, result)| ty != result) {
        let one = format!("{result} of {}", of(&|(ty, found)| found == result && ty != found));
        if !told.contains(&one) {
            told.push(one);
        }
    }
    told.join("; ")
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    for function in AggregateFunction::ALL {
        let aliases = function.aliases().iter().map(|alias| format!(", `{alias}`")).collect::<String>();
        let state = if function.keeps_values() { "**unbounded state**" } else { "bounded state" };
        let staged = TYPES.iter().any(|ty| {
            let arguments = vec![typed(*ty), typed(*ty)];
            let plan = Aggregate { function, arguments, distinct: false, order_by: Vec::new(), filter: None, ty: *ty, nullable: true };
            state_columns(&plan).is_some()
        });
        let staged = if staged { "yes" } else { "no" };
        writeln!(page, "| `{}`{aliases} | {} | {state} | {staged} |", call(function), gives(function)).unwrap();
    }
    let refused = FUNCTIONS.other_aggregates.iter().filter(|name| !FUNCTIONS.aggregate.contains_key(name.as_str()));
    let refused = refused.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    writeln!(page, "\nRefused: {refused}. Columns have no list type; `string_agg` gives the values as one text.").unwrap();
    let names = |volatile: bool| {
        let found = FUNCTIONS.scalar.values().filter(|function| (function.signature().volatility == Volatility::Volatile) == volatile);
        found.map(|function| format!("`{}`", function.name())).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    };
    page += "\n## Functions of single rows\n\nAll are stream-ok. `now()` is the processing time of the batch. `tests/functions/` has values of each.\n\n";
    page += &lines(&names(false));
    let _ = write!(page, "\nRefused, since they give something else each time: {}.\n", names(true).join(", "));
    page
}

/// Words in lines of a readable length.
fn lines(words: &[String]) -> String {
    let mut text = String::new();
    let mut length = 0;
    for (at, word) in words.iter().enumerate() {
        let end = if at + 1 == words.len() { ".\n" } else { "," };
        if length + word.len() > 130 {
            text.push('\n');
            length = 0;
        } else if length > 0 {
            text.push(' ');
        }
        length += word.len() + 2;
        text = text + word + end;
    }
    text
}

/// SQL-3: every function is on the page, with what it gives and what its state is.
#[test]
fn the_page_of_functions_is_what_the_registry_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/functions.md");
    let page = page();
    if std::env::var("WEIR_GOLDEN").is_ok_and(|value| value == "write") {
        std::fs::write(&path, &page).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = found.lines().zip(page.lines()).find(|(found, wanted)| found != wanted);
    assert!(found == page, "docs/functions.md is behind (WEIR_GOLDEN=write writes it): {differs:?}");
}
