CREATE SOURCE bids (auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, date_time TIMESTAMP(3), extra TEXT,
    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')
  WITH (connector = 'kafka', brokers = 'localhost:9092', topic = 'bids', format = 'json');
CREATE JOB per_minute AS
  SELECT bidder, window_start, window_end, count(*) AS n, sum(price) AS total
  FROM TUMBLE(TABLE bids, DESCRIPTOR(date_time), INTERVAL '1' MINUTE) GROUP BY bidder, window_start, window_end;
