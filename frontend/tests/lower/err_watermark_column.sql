CREATE SOURCE s (a BIGINT, WATERMARK FOR b AS b) WITH (connector = 'kafka', brokers = 'b:1', topic = 't', format = 'json');
