//! What bytes mean: JSON and CSV in all the ways that people write values, and back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::path::Path;
use support::process::{Weir, temporary, write};
use support::sql::{Rows, Sql};

const COLUMNS: &str = "n BIGINT, b BOOLEAN, i2 SMALLINT, i4 INTEGER, i8 BIGINT, f4 REAL, f8 DOUBLE PRECISION, d DECIMAL(28,18), t TEXT, day DATE, at TIMESTAMP(3)";

fn copy(sql: &Sql, name: &str, columns: &str, path: &Path, with: &str) -> Rows {
    sql.run(&format!("CREATE SOURCE {name} ({columns}) WITH (connector = 'file', path = '{}', {with})", path.display()));
    sql.run(&format!("CREATE JOB {name}_copy AS SELECT * FROM {name}"));
    sql.run(&format!("WAIT FOR JOB {name}_copy UNTIL FINISHED TIMEOUT '30s'"));
    sql.rows(&format!("SELECT * FROM {name}_copy ORDER BY 1"))
}

/// C30, C32: numbers and texts, escapes, unknown fields, missing ones; decimals never go through a double.
#[test]
fn json_values_are_read_in_every_spelling() {
    let (data, dir) = (temporary(), temporary());
    let weir = Weir::up(data.path());
    let sql = weir.sql();
    let lines = r#"
{"n":1,"b":true,"i2":-32768,"i4":2147483647,"i8":-9223372036854775808,"f4":1.5,"f8":-2.25e3,"d":0.123456789012345678,"t":"a\"b\\c\u00e4\ud83d\ude00","day":"2024-02-29","at":"2024-02-29T12:00:00.001Z"}
{"at":"2024-02-29T13:00:00.001+01:00","d":"9999999999.000000000000000001","unknown":{"x":[1,{"y":null}]},"f8":1,"f4":-2,"t":"","b":false,"n":2,"i8":9223372036854775807,"i4":0,"i2":0,"day":"1969-12-31"}
  { "n" : 3 , "at" : "2024-02-29 12:00:00.001" , "d" : 100 }

{"n":4,"b":null,"i2":null,"i4":null,"i8":null,"f4":null,"f8":null,"d":null,"t":null,"day":null,"at":null}
"#;
    let path = write(dir.path(), "in.ndjson", lines);
    let rows = copy(&sql, "j", COLUMNS, &path, "format = 'json'");
    let at = "2024-02-29 12:00:00.001";
    let wanted = [
        ["1", "t", "-32768", "2147483647", "-9223372036854775808", "1.5", "-2250", "0.123456789012345678", "a\"b\\cä😀", "2024-02-29", at],
        ["2", "f", "0", "0", "9223372036854775807", "-2", "1", "9999999999.000000000000000001", "", "1969-12-31", at],
        ["3", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "100.000000000000000000", "NULL", "NULL", at],
        ["4", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL"],
    ];
    for (got, wanted) in rows.iter().zip(&wanted) {
        assert_eq!(got, wanted);
    }
    assert_eq!(rows.len(), wanted.len(), "an empty line is no record");
}

/// C29: a unit makes a time of a number, and only the declared one.
#[test]
fn numbers_are_times_in_the_declared_unit_only() {
    let (data, dir) = (temporary(), temporary());
    let weir = Weir::up(data.path());
    let sql = weir.sql();
    let path = write(dir.path(), "in.ndjson", "{\"at\":-1}\n{\"at\":63072000}\n");
    for (unit, first, second) in [
        ("s", "1969-12-31 23:59:59", "1972-01-01 00:00:00"),
        ("ms", "1969-12-31 23:59:59.999", "1970-01-01 17:31:12"),
        ("us", "1969-12-31 23:59:59.999999", "1970-01-01 00:01:03.072"),
    ] {
        let rows = copy(&sql, &format!("unit_{unit}"), "at TIMESTAMP(6)", &path, &format!("format = 'json', timestamp_unit = '{unit}'"));
        assert_eq!(rows, [[first], [second]], "{unit}");
    }
}

#[test]
fn csv_is_read_by_name_and_by_place() {
    let (data, dir) = (temporary(), temporary());
    let weir = Weir::up(data.path());
    let sql = weir.sql();
    let wanted = [["1", "a,b \"c\"", "2.50", "2024-01-01 00:00:00"], ["2", "ä", "-0.01", "2024-01-01 00:00:00.5"]];
    let columns = "n BIGINT, t TEXT, d DECIMAL(6,2), at TIMESTAMP(3)";
    let named = "at,d,n,t\n2024-01-01T00:00:00Z,2.5,1,\"a,b \"\"c\"\"\"\n2024-01-01 00:00:00.5,-0.01,2,ä\n";
    let path = write(dir.path(), "named.csv", named);
    assert_eq!(copy(&sql, "named", columns, &path, "format = 'csv', format.header = true"), wanted);
    let placed = "1;a,b \"c\";2.5;2024-01-01T00:00:00Z\n2;ä;-0.01;2024-01-01 00:00:00.5\n".replace("a,b \"c\"", "\"a,b \"\"c\"\"\"");
    let path = write(dir.path(), "placed.csv", &placed);
    assert_eq!(copy(&sql, "placed", columns, &path, "format = 'csv', format.delimiter = ';'"), wanted);
}

/// What a file sink writes, a file source reads: no value changes on the way.
#[test]
fn what_is_written_is_read_back() {
    let (data, dir) = (temporary(), temporary());
    let weir = Weir::up(data.path());
    let sql = weir.sql();
    sql.run(&format!(
        "CREATE SOURCE v ({COLUMNS}) AS VALUES
         (1, TRUE, 1, 2, 9223372036854775807, 0.1, 0.1, 0.000000000000000001, 'line
two \"quoted\" \\ ä 😀', DATE '0001-01-01', TIMESTAMP '9999-12-31 23:59:59.999'),
         (2, FALSE, -32768, -2147483648, -9223372036854775807, -3.5, 1e300, -9999999999.999999999999999999, '', DATE '2024-02-29', TIMESTAMP '1969-12-31 23:59:59.999'),
         (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
    ));
    let out = dir.path().join("made/by/the/sink");
    sql.run(&format!("CREATE SINK f WITH (connector = 'file', path = '{}', format = 'json')", out.display()));
    sql.run("CREATE JOB writes INTO f AS SELECT * FROM v");
    sql.run("CREATE JOB keeps AS SELECT * FROM v");
    sql.run("WAIT FOR JOB writes UNTIL FINISHED TIMEOUT '30s'");
    sql.run("WAIT FOR JOB keeps UNTIL FINISHED TIMEOUT '30s'");
    let kept = sql.rows("SELECT * FROM keeps ORDER BY n");
    assert_eq!(kept[0][7], "0.000000000000000001");
    assert_eq!(copy(&sql, "back", COLUMNS, &out.join("*.ndjson"), "format = 'json'"), kept);
}

/// Without columns there is nothing to read JSON into, and NOT NULL is kept.
#[test]
fn not_null_makes_a_missing_value_a_bad_record() {
    let (data, dir) = (temporary(), temporary());
    let weir = Weir::up(data.path());
    let sql = weir.sql();
    let path = write(dir.path(), "in.ndjson", "{\"n\":1}\n{\"m\":2}\n{\"n\":null}\n{\"n\":4}\n");
    let rows = copy(&sql, "strict", "n BIGINT NOT NULL", &path, "format = 'json', on_error = 'skip'");
    assert_eq!(rows, [["1"], ["4"]]);
    assert_eq!(sql.one("SELECT sum(rows_error_total) FROM weir.job_sources WHERE job = 'strict_copy'"), "2");
}
