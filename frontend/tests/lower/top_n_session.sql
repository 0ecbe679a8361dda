CREATE SOURCE bids (auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, date_time TIMESTAMP(3), extra TEXT,
    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')
  WITH (connector = 'kafka', brokers = 'localhost:9092', topic = 'bids', format = 'json');
CREATE JOB top AS SELECT * FROM (
    SELECT bidder, n, row_number() OVER (PARTITION BY window_start, window_end ORDER BY n DESC) AS place FROM (
      SELECT bidder, window_start, window_end, count(*) AS n FROM session(bids, date_time, INTERVAL '2 seconds')
      GROUP BY bidder, window_start, window_end)) WHERE place = 1;
