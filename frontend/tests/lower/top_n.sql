CREATE SOURCE bids (auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, date_time TIMESTAMP(3), extra TEXT,
    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')
  WITH (connector = 'kafka', brokers = 'localhost:9092', topic = 'bids', format = 'json');
CREATE JOB top AS SELECT window_start, window_end, auction, n, rn FROM (
    SELECT *, row_number() OVER (PARTITION BY window_start, window_end ORDER BY n DESC, auction) AS rn FROM (
      SELECT auction, window_start, window_end, count(*) AS n FROM hop(bids, date_time, INTERVAL '2 seconds', INTERVAL '10 seconds')
      GROUP BY auction, window_start, window_end)) WHERE rn <= 10;
