CREATE SOURCE bids (auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, date_time TIMESTAMP(3), extra TEXT,
    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')
  WITH (connector = 'kafka', brokers = 'localhost:9092', topic = 'bids', format = 'json');
CREATE JOB hot AS SELECT auction, hop_start(date_time, INTERVAL '2 seconds', INTERVAL '10 seconds') AS began, hop_end(), count(*) AS n
  FROM bids b GROUP BY hop(b.date_time, INTERVAL '2 seconds', INTERVAL '10 seconds'), auction HAVING hop_end() > TIMESTAMP '2024-01-01 00:00:00';
