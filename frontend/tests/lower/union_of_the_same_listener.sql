CREATE SOURCE h (k TEXT, x BIGINT) WITH (connector = 'http', address = '127.0.0.1:8080', path = '/h');
CREATE JOB j AS SELECT k, x FROM h UNION ALL SELECT k, x FROM h;
