CREATE SOURCE v (k TEXT, ts BIGINT, x BIGINT, WATERMARK FOR ts AS ts) AS VALUES ('a', 0, 1);
CREATE JOB j AS
  SELECT window_start, count(*) AS n FROM tumble(v, ts, INTERVAL '300000 days') GROUP BY window_start;
