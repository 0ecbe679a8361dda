CREATE SOURCE bids (auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, date_time TIMESTAMP(3), extra TEXT,
    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')
  WITH (connector = 'kafka', brokers = 'localhost:9092', topic = 'bids', format = 'json');
CREATE JOB hourly AS WITH fine AS (SELECT auction, count(*) AS n, window_start AS began FROM tumble(bids, date_time, INTERVAL '1 minute')
    GROUP BY auction, window_start, window_end)
  SELECT upper(CAST(auction AS TEXT)) AS k, sum(n) AS n, window_end FROM tumble(fine, began, INTERVAL '1 hour')
  WHERE n > 1 GROUP BY upper(CAST(auction AS TEXT)), window_start, window_end;
