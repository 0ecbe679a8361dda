CREATE SOURCE bids (auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, date_time TIMESTAMP(3), extra TEXT,
    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')
  WITH (connector = 'kafka', brokers = 'localhost:9092', topic = 'bids', format = 'json');
CREATE JOB typed AS SELECT CASE WHEN price > 100 THEN 'high' WHEN price > 10 THEN 'mid' ELSE 'low' END AS class, CAST(price AS INTEGER) p32, price::TEXT AS t,
  coalesce(channel, 'none') AS channel, date_time + INTERVAL '1 day' AS tomorrow, extract(hour FROM date_time) AS h, substring(url FROM 1 FOR 5), url ~ '^http' AS is_http,
  price BETWEEN 1 AND 5 AS small, channel IN ('a', 'b') AS known FROM bids;
