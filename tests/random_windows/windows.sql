-- Windows of many cases at once in the SQL of a database: aligned ones by every start that could hold
-- a row, sessions by lag(); rows of one time are peers, in whatever order they come. Runs in DuckDB and in Postgres alike.
CREATE TABLE cases (c BIGINT, session BOOLEAN, size BIGINT, slide BIGINT, shift BIGINT);
CREATE TABLE events (c BIGINT, t BIGINT, k TEXT, x BIGINT, y DOUBLE PRECISION, d DECIMAL(12,2));
CREATE TABLE numbers (i BIGINT);
COPY cases FROM '{dir}/cases.csv' (FORMAT csv, HEADER false, NULL '\N');
COPY events FROM '{dir}/events.csv' (FORMAT csv, HEADER false, NULL '\N');
INSERT INTO numbers SELECT * FROM generate_series(0, 5000);
COPY (
  WITH held AS (
    SELECT c, k, x, y, d, t, started - i * slide AS w, started - i * slide + size AS e
    FROM (
      SELECT events.*, size, slide, t - (((t - shift) % slide) + slide) % slide AS started
      FROM events JOIN cases USING (c) WHERE NOT session
    ) AS latest JOIN numbers ON i * slide < size
    WHERE started - i * slide + size > t
  ), cut AS (
    SELECT events.*, size, CASE WHEN t - lag(t) OVER (PARTITION BY c, k ORDER BY t) < size THEN 0 ELSE 1 END AS fresh
    FROM events JOIN cases USING (c) WHERE session
  ), counted AS (
    SELECT *, sum(fresh) OVER (PARTITION BY c, k ORDER BY t RANGE UNBOUNDED PRECEDING) AS number FROM cut
  ), bounded AS (
    SELECT c, k, x, y, d, t, min(t) OVER one AS w, max(t) OVER one + size AS e FROM counted WINDOW one AS (PARTITION BY c, k, number)
  )
  SELECT c, w, e, k, count(*), count(x), sum(x), avg(x), min(x), max(x), sum(y), min(y), max(y), sum(d),
         count(DISTINCT x), count(*) FILTER (WHERE x > 0), min(k)
  FROM (SELECT * FROM held UNION ALL SELECT * FROM bounded) AS everything
  GROUP BY c, w, e, k
) TO '{dir}/answer.csv' (FORMAT csv, HEADER false, NULL '\N');
