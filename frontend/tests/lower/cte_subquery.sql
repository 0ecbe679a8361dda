CREATE SOURCE bids (auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, date_time TIMESTAMP(3), extra TEXT,
    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')
  WITH (connector = 'kafka', brokers = 'localhost:9092', topic = 'bids', format = 'json');
CREATE JOB nested AS WITH cheap AS (SELECT auction, price, date_time AS ts FROM bids WHERE price < 1000)
  SELECT auction AS a, n * 2 AS twice, window_time FROM (
    SELECT auction, window_time, count(*) AS n FROM tumble((SELECT * FROM cheap WHERE price > 1), ts, INTERVAL '1 minute', INTERVAL '10 seconds')
    GROUP BY auction, window_time, window_start) x WHERE n > 1;
