"""The queries on DataFusion, with one partition. It reads the file anew in each run and gives all result rows."""
import os

import datafusion
import pyarrow as pa

from timing import arguments, is_parquet, report, timed

TYPES = {"auction": pa.int64(), "bidder": pa.int64(), "price": pa.int64(), "extra": pa.string(), "dateTime": pa.timestamp("ms")}
MS = 'CAST("dateTime" AS BIGINT)'
# Columns, and the query over `bids`.
QUERIES = {
    "q0": (list(TYPES), 'SELECT auction, bidder, price, "dateTime", extra FROM bids'),
    "q1": (list(TYPES), 'SELECT auction, bidder, price * 0.908, "dateTime", extra FROM bids'),
    "q2": (["auction", "price"], "SELECT auction, price FROM bids WHERE auction % 123 = 0"),
    # Each bid counts in its slice of 2 s; a window is five slices.
    "q5": (
        ["auction", "dateTime"],
        f"""WITH slices AS (SELECT auction, {MS} / 2000 AS slice, count(*) AS bids FROM bids GROUP BY auction, {MS} / 2000)
            SELECT auction, first, sum(bids) FROM
              (SELECT auction, bids, unnest(generate_series(slice - 4, slice)) AS first FROM slices)
            GROUP BY auction, first""",
    ),
    "q7": (["price", "dateTime"], f"SELECT {MS} / 10000 AS w, max(price) FROM bids GROUP BY {MS} / 10000"),
    "q11": (
        ["bidder", "dateTime"],
        f"""WITH marked AS (SELECT bidder, {MS} AS moment,
              CASE WHEN {MS} - lag({MS}) OVER (PARTITION BY bidder ORDER BY "dateTime") >= 10000 THEN 1 ELSE 0 END AS begins FROM bids),
            numbered AS (SELECT bidder, moment, sum(begins) OVER (PARTITION BY bidder ORDER BY moment) AS session FROM marked)
            SELECT bidder, session, min(moment), max(moment), count(*) FROM numbered GROUP BY bidder, session""",
    ),
    "q12": (["bidder", "dateTime"], f"SELECT bidder, {MS} / 10000 AS w, count(*) FROM bids GROUP BY bidder, {MS} / 10000"),
}


def run(path, query):
    columns, select = QUERIES[query]
    context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))
    if is_parquet(path):
        context.register_parquet("bids", path)
    else:
        schema = pa.schema([(name, TYPES[name]) for name in columns])
        context.register_json("bids", path, file_extension=os.path.splitext(path)[1], schema=schema)
    return sum(batch.to_pyarrow().num_rows for batch in context.sql(select).execute_stream())


def main():
    a = arguments(__doc__)
    for _ in range(a.repeat):
        report(timed(lambda: run(a.input, a.query)))


if __name__ == "__main__":
    main()
