CREATE SOURCE bids (auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, date_time TIMESTAMP(3), extra TEXT,
    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')
  WITH (connector = 'kafka', brokers = 'localhost:9092', topic = 'bids', format = 'json');
CREATE JOB per_start AS SELECT window_start, auction % 2 AS odd, sum(n) AS total FROM (
    SELECT auction, window_start, count(*) AS n FROM tumble(bids, date_time, INTERVAL '2 seconds') GROUP BY auction, window_start)
  GROUP BY window_start, auction % 2 HAVING sum(n) > 10;
