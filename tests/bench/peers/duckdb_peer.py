"""The queries on DuckDB, with one thread. It reads the file anew in each run and gives all result rows."""
import duckdb
import pyarrow  # noqa: F401  imported before the clock starts

from timing import arguments, is_parquet, report, timed

TYPES = {"auction": "BIGINT", "bidder": "BIGINT", "price": "BIGINT", "extra": "VARCHAR", '"dateTime"': "TIMESTAMP"}
MS = 'epoch_ms("dateTime")'
# Columns, and the query over `bids`.
QUERIES = {
    "q0": (list(TYPES), 'SELECT auction, bidder, price, "dateTime", extra FROM bids'),
    "q1": (list(TYPES), 'SELECT auction, bidder, price * 0.908, "dateTime", extra FROM bids'),
    "q2": (["auction", "price"], "SELECT auction, price FROM bids WHERE auction % 123 = 0"),
    # Each bid counts in its slice of 2 s; a window is five slices.
    "q5": (
        ["auction", '"dateTime"'],
        f"""WITH slices AS (SELECT auction, {MS} // 2000 AS slice, count(*) AS bids FROM bids GROUP BY auction, slice)
            SELECT auction, first, sum(bids) FROM
              (SELECT auction, bids, unnest(generate_series(slice - 4, slice)) AS first FROM slices)
            GROUP BY auction, first""",
    ),
    "q7": (["price", '"dateTime"'], f"SELECT {MS} // 10000 AS w, max(price) FROM bids GROUP BY w"),
    "q11": (
        ["bidder", '"dateTime"'],
        f"""WITH marked AS (SELECT bidder, {MS} AS moment,
                CASE WHEN {MS} - lag({MS}) OVER sorted >= 10000 THEN 1 ELSE 0 END AS begins FROM bids
              WINDOW sorted AS (PARTITION BY bidder ORDER BY "dateTime")),
            numbered AS (SELECT bidder, moment, sum(begins) OVER (PARTITION BY bidder ORDER BY moment) AS session FROM marked)
            SELECT bidder, session, min(moment), max(moment), count(*) FROM numbered GROUP BY bidder, session""",
    ),
    "q12": (["bidder", '"dateTime"'], f"SELECT bidder, {MS} // 10000 AS w, count(*) FROM bids GROUP BY bidder, w"),
}


def run(path, query):
    columns, select = QUERIES[query]
    connection = duckdb.connect(config={"threads": 1})
    if is_parquet(path):
        source = f"read_parquet('{path}')"
    else:
        # Only the columns that the query asks for are named, as the reader of Weir does.
        typed = ", ".join(f"{name}: '{TYPES[name]}'" for name in columns)
        source = f"read_json('{path}', format='newline_delimited', columns={{{typed}}})"
    connection.execute(f"CREATE VIEW bids AS SELECT * FROM {source}")
    return sum(batch.num_rows for batch in connection.sql(select).to_arrow_reader(65_536))


def main():
    a = arguments(__doc__)
    for _ in range(a.repeat):
        report(timed(lambda: run(a.input, a.query)))


if __name__ == "__main__":
    main()
