-- settings
SET plan_cache_mode = 'force_generic_plan'; SET enable_hashjoin = 'off'; SET enable_mergejoin = 'off'; SET enable_bitmapscan = 'off'; SET enable_seqscan = 'off'; SET default_transaction_isolation = 'serializable'; SET default_transaction_read_only = 'off'; SET default_transaction_deferrable = 'off'; SET standard_conforming_strings = 'on'; SET client_min_messages = 'warning'; SET statement_timeout = '0';

-- begin to read
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY

-- the number of a read transaction
pg_snapshot_xmin(pg_current_snapshot())::text

-- begin to write
BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE DEFERRABLE

-- the number of a write transaction
pg_current_xact_id()::text

-- lock
SELECT pg_try_advisory_lock(hashtextextended($1::text, 0))

-- create the table of tokens
CREATE TABLE "shop".".commits" (k bytea NOT NULL, v bytea NOT NULL, PRIMARY KEY (k)) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, vacuum_truncate = false);

-- create
CREATE TABLE "shop"."people" (k bytea NOT NULL, v bytea NOT NULL, PRIMARY KEY (k)) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, vacuum_truncate = false);

-- load
COPY "shop"."people" (k, v) FROM STDIN WITH (FORMAT binary)

-- create
CREATE TABLE "shop"."people.town" (k bytea NOT NULL, p bytea NOT NULL, v bytea NOT NULL, PRIMARY KEY (k, p)) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, vacuum_truncate = false);

-- load
COPY "shop"."people.town" (k, p, v) FROM STDIN WITH (FORMAT binary)

-- create
CREATE TABLE "shop"."people.email" (k bytea NOT NULL, s bytea NOT NULL, p bytea NOT NULL, v bytea NOT NULL, PRIMARY KEY (k, s)) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, vacuum_truncate = false);

-- load
COPY "shop"."people.email" (k, s, p, v) FROM STDIN WITH (FORMAT binary)

-- insert, as a transaction of its own
WITH g AS MATERIALIZED (SELECT 1 WHERE NOT current_setting('transaction_deferrable') = 'on' AND coalesce((SELECT convert_from(v, 'UTF8') FROM "shop".".catalog" WHERE k = '\x006368616e676573'), '0') = $1::text), c0 AS (INSERT INTO "shop"."people.email" (k, s, p, v) SELECT $2::bytea, ''::bytea, $3::bytea, $4::bytea FROM g), c1 AS (INSERT INTO "shop"."people" (k, v) SELECT $5::bytea, $6::bytea FROM g), c2 AS (INSERT INTO "shop"."people.town" (k, p, v) SELECT $7::bytea, $8::bytea, $9::bytea FROM g), c3 AS (INSERT INTO "shop"."people.total" (k, v) SELECT $10::bytea, $11::bytea FROM g), t AS (INSERT INTO "shop".".commits" (k, v) SELECT $12::bytea, '\x01'::bytea || int8send((extract(epoch FROM clock_timestamp()) * 1000000)::int8) FROM g RETURNING ctid::text AS place), d AS (DELETE FROM "shop".".commits" WHERE ctid = $13::text::tid AND k || ''::bytea = $14::bytea AND EXISTS (SELECT 1 FROM g)) SELECT 0::int8, EXISTS (SELECT 1 FROM g), (SELECT place FROM t)

-- insert, in a transaction
WITH c0 AS (INSERT INTO "shop"."people.email" (k, s, p, v) VALUES ($1::bytea, ''::bytea, $2::bytea, $3::bytea) ON CONFLICT (k, s) DO NOTHING RETURNING 1), c1 AS (INSERT INTO "shop"."people" (k, v) SELECT $4::bytea, $5::bytea FROM c0 ON CONFLICT (k) DO NOTHING RETURNING 1), c2 AS (INSERT INTO "shop"."people.town" (k, p, v) SELECT $6::bytea, $7::bytea, $8::bytea FROM c1 ON CONFLICT (k, p) DO UPDATE SET v = EXCLUDED.v), c3 AS (INSERT INTO "shop"."people.total" (k, v) SELECT $9::bytea, $10::bytea FROM c1) SELECT (SELECT count(*) FROM c0) + (SELECT count(*) FROM c1)

-- change, in a transaction
WITH c0 AS (INSERT INTO "shop"."people" (k, v) VALUES ($1::bytea, $2::bytea) ON CONFLICT (k) DO UPDATE SET v = EXCLUDED.v), c1 AS (DELETE FROM "shop"."people.email" WHERE k = $3 AND p = $4), c2 AS (INSERT INTO "shop"."people.email" (k, s, p, v) VALUES ($5::bytea, ''::bytea, $6::bytea, $7::bytea) ON CONFLICT (k, s) DO UPDATE SET p = EXCLUDED.p, v = EXCLUDED.v), c3 AS (DELETE FROM "shop"."people.town" t USING unnest($8::bytea[], $9::bytea[]) AS n (k, p) WHERE t.k = n.k AND t.p = n.p), c4 AS (INSERT INTO "shop"."people.town" (k, p, v) SELECT a, b, c FROM unnest($10::bytea[], $11::bytea[], $12::bytea[]) AS n (a, b, c) ON CONFLICT (k, p) DO UPDATE SET v = EXCLUDED.v) SELECT 0::int8

-- the token of a commit
WITH d AS (DELETE FROM "shop".".commits" WHERE ctid = $2::text::tid AND k || ''::bytea = $3::bytea) INSERT INTO "shop".".commits" (k, v) SELECT $1::bytea, '\x01'::bytea || int8send((extract(epoch FROM clock_timestamp()) * 1000000)::int8) RETURNING ctid::text AS place

-- the fence of a commit
BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = 5000; SET LOCAL statement_timeout = 5000; INSERT INTO "shop".".commits" AS c (k, v) VALUES ('\x07070707070707070707070707070707', '\x00'::bytea || int8send((extract(epoch FROM clock_timestamp()) * 1000000)::int8)) ON CONFLICT (k) DO UPDATE SET v = c.v RETURNING get_byte(v, 0)::text; COMMIT

-- remove old tokens
BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = 1000; SET LOCAL enable_seqscan = on; DELETE FROM "shop".".commits" WHERE ctid = ANY (ARRAY(SELECT ctid FROM "shop".".commits" WHERE substr(v, 2) < int8send(((extract(epoch FROM clock_timestamp()) - 86400) * 1000000)::int8) AND age(xmin) > age(xid(pg_snapshot_xmin(pg_current_snapshot()))) LIMIT 100000)); COMMIT

-- get by a unique index
SELECT e.k, e.p, e.v, f.v FROM (SELECT k, p, v FROM "shop"."people.email" WHERE k = $1 LIMIT 2) e LEFT JOIN "shop"."people" f ON f.k = e.p

-- rows of a key
SELECT e.k, e.p, e.v, f.v FROM (SELECT k, p, v FROM "shop"."people.town" WHERE k >= $1 AND k < $2 ORDER BY k, p LIMIT $3::int8) e LEFT JOIN "shop"."people" f ON f.k = e.p ORDER BY e.k, e.p
