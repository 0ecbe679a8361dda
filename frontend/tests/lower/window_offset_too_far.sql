CREATE SOURCE v (k TEXT, ts BIGINT, x BIGINT, WATERMARK FOR ts AS ts) AS VALUES ('a', 0, 1);
CREATE JOB j AS
  SELECT window_start, count(*) AS n FROM hop(v, ts, INTERVAL '1 second', INTERVAL '2 seconds', INTERVAL '-300000 days') GROUP BY window_start;
