CREATE SOURCE bids (auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, date_time TIMESTAMP(3), extra TEXT,
    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')
  WITH (connector = 'kafka', brokers = 'localhost:9092', topic = 'bids', format = 'json');
CREATE JOB daily AS SELECT window_start, count(*) AS n
  FROM tumble(bids, date_time, INTERVAL '7 days', TIMEZONE => 'America/New_York', OFFSET => INTERVAL '4 days') GROUP BY window_start;
