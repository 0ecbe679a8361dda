CREATE SOURCE v (k TEXT, ts BIGINT, x BIGINT, WATERMARK FOR ts AS ts) AS VALUES ('a', 0, 1);
CREATE JOB j AS
  SELECT window_start, count(*) AS n FROM tumble((SELECT k, ts + 1 AS later FROM v), later, INTERVAL '1 minute') GROUP BY window_start;
