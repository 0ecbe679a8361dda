CREATE SOURCE bids (auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, date_time TIMESTAMP(3), extra TEXT,
    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')
  WITH (connector = 'kafka', brokers = 'localhost:9092', topic = 'bids', format = 'json');
CREATE JOB channels AS SELECT upper(channel) AS ch, price / 100 AS bucket, window_start, avg(price) AS mean, max(url) FILTER (WHERE price > 10) AS last_url
  FROM tumble(bids, date_time, INTERVAL '1 hour') WHERE extra IS NOT NULL GROUP BY upper(channel), price / 100, window_start, window_end;
