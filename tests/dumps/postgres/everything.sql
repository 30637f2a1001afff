-- One of each kind of object and each type that PostgreSQL has without further packages. XML stays NULL: the server that
-- comes with Paddock is built without it, and refuses every value (test_xml.py has a server with it).
CREATE ROLE :"role" NOLOGIN;
CREATE SCHEMA "Odd schema";
COMMENT ON SCHEMA "Odd schema" IS 'it''s odd
--
COPY public.fake (a) FROM stdin;
\.';
CREATE EXTENSION vector;

CREATE TYPE mood AS ENUM ('sad', 'o''k', 'Happy day');
CREATE DOMAIN positive AS int CHECK (VALUE > 0) DEFAULT 5;
CREATE DOMAIN photo AS bytea;
CREATE TYPE pair AS (a int, b text);
CREATE TYPE tree AS (node pair, leaves pair[]);
CREATE TYPE span AS RANGE (subtype = float8, subtype_diff = float8mi);
CREATE COLLATION backwards (provider = builtin, locale = 'C.UTF-8');
CREATE SEQUENCE counter AS bigint START 100 INCREMENT 7 CACHE 3 CYCLE MAXVALUE 10000;
SELECT setval('counter', 121, false);

CREATE TABLE every_type (
    id bigint GENERATED ALWAYS AS IDENTITY (START 10 INCREMENT 5) PRIMARY KEY,
    own serial, small smallint, i int, big bigint, num numeric, fixed numeric(12, 4), r real, d double precision,
    cash money, t text COLLATE backwards, v varchar(20), c char(5), q "char", n name, b bytea, p photo,
    ts timestamp, tz timestamptz, day date, clock time, clock_tz timetz, span interval,
    yes boolean, m mood, pos positive, u uuid, net inet, block cidr, mac macaddr, mac8 macaddr8,
    bits bit(4), varbits bit varying, pt point, l line, seg lseg, bx box, pa path, po polygon, ci circle,
    vec tsvector, query tsquery, js json, jb jsonb, path jsonpath, x xml,
    r4 int4range, r8 int8range, rn numrange, rts tsrange, rtz tstzrange, rd daterange, own_range span,
    multi int4multirange, own_multi span_multirange[], ints int[], grid int[][], texts text[], moods mood[], pairs pair[],
    one pair, whole tree, lsn pg_lsn, txid xid8, tid tid, o oid, cls regclass, typ regtype, fn regprocedure, rol regrole,
    embedding vector(3)
);
INSERT INTO every_type (small, i, big, num, fixed, r, d, cash, t, v, c, q, n, b, p, ts, tz, day, clock, clock_tz, span, yes,
    m, pos, u, net, block, mac, mac8, bits, varbits, pt, l, seg, bx, pa, po, ci, vec, query, js, jb, path, x, r4, r8, rn, rts,
    rtz, rd, own_range, multi, own_multi, ints, grid, texts, moods, pairs, one, whole, lsn, txid, tid, o, cls, typ, fn,
    rol, embedding)
VALUES (-32768, -2147483648, -9223372036854775808, 123456789012345678901234567890.000000001000, 1.5, 1e-45,
    5e-324, '-12.34', E'tab\t, newline\n, return\r, quote '', double ", back \\ \\. \\N é 漢 \U0001F600', E'\\N', 'ab', '''',
    'a name', '\x00ff0a0d5c', '\x', '-infinity', '2026-11-16 01:02:03.456789+13', '0044-03-15 BC', '24:00:00',
    '01:02:03.5+05:30', '-1 year -2 days +03:04:05.678', true, 'Happy day', 7, '00000000-0000-4000-8000-000000000001',
    '::ffff:1.2.3.4/100', '10.1.0.0/16', '08:00:2b:01:02:03', '08:00:2b:01:02:03:04:05', B'1010', B'', '(1.5,-0)',
    '{1,2,3}', '[(0,0),(1,1e300)]', '(1,1),(0,0)', '[(0,0),(1,1)]', '((0,0),(1,1),(1,0))', '<(0,0),1.5>',
    'a:1A fat:2B,4C ''it''''s''', 'fat & (rat | !cat:A*)', E'{"a": 1,\n  "a":\t[1.00, "\\u0041"]}', '{"b": 1e400, "a": null}',
    '$.a[*] ? (@ > 1)', NULL, '[1,5)', 'empty', '(,1.5]', '["2026-01-01","2026-01-02")', '(,)',
    '[2026-01-01,)', '[0.1,0.2)', '{[1,2),[5,7)}', '{"{[0.1,0.2)}"}', '{1,NULL,3}', '[0:1][5:6]={{1,2},{3,4}}',
    ARRAY['', NULL, 'NULL', 'a,b', '"', '{}'], '{sad,o''k}', ARRAY[ROW(1, 'x,"y'), ROW(NULL, '')]::pair[], ROW(NULL, E'a\nb'),
    ROW(ROW(1, 'a'), ARRAY[ROW(2, 'b')::pair]), '16/B374D848', '42', '(1,2)', 4294967295, 'pg_class', 'int4', 'lower(text)',
    :'role', '[1,2.5,-3]'),
    (32767, 2147483647, 9223372036854775807, 'NaN', -0.0001, 'NaN', '-Infinity', 0, '', '', '', '', '', NULL, NULL,
    'infinity', '0001-01-01 00:00:00+00 BC', 'infinity', '00:00', '00:00+00', '0', false, 'sad', 1, NULL, NULL, NULL, NULL,
    NULL, B'0000', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '', '', 'null', 'null', '$', NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    NULL, '{}', '{}', '{}', '{}', '{}', '{}', '{}', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO every_type DEFAULT VALUES;
INSERT INTO every_type (num, r, d) VALUES ('-Infinity', '-0', '-0');

CREATE TABLE generated (a int PRIMARY KEY, twice int GENERATED ALWAYS AS (a * 2) STORED, thrice int GENERATED ALWAYS AS (a * 3) VIRTUAL);
INSERT INTO generated VALUES (1), (2);
CREATE TABLE only_generated (a int GENERATED ALWAYS AS (1) STORED);
INSERT INTO only_generated DEFAULT VALUES;
CREATE TABLE no_columns ();
INSERT INTO no_columns DEFAULT VALUES;
INSERT INTO no_columns DEFAULT VALUES;
CREATE TABLE dropped (a int, gone text, b int);
INSERT INTO dropped VALUES (1, 'x', 2);
ALTER TABLE dropped DROP COLUMN gone;
CREATE UNLOGGED TABLE unlogged AS SELECT 'kept' AS a;
CREATE TABLE one_json (j json);
INSERT INTO one_json VALUES (E'{"a":\n\r\n 1}'), (NULL), ('""');

CREATE TABLE measured (at date NOT NULL, value int, note text DEFAULT 'none') PARTITION BY RANGE (at);
CREATE TABLE measured_2025 PARTITION OF measured FOR VALUES FROM ('2025-01-01') TO ('2026-01-01');
CREATE TABLE measured_2026 (note text, value int, at date NOT NULL) PARTITION BY LIST (value);
CREATE TABLE measured_2026_low PARTITION OF measured_2026 FOR VALUES IN (1, 2);
CREATE TABLE measured_2026_rest PARTITION OF measured_2026 DEFAULT;
ALTER TABLE measured ATTACH PARTITION measured_2026 FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
INSERT INTO measured VALUES ('2025-05-05', 1, 'a'), ('2026-05-05', 1, 'b'), ('2026-06-06', 99, NULL);
CREATE INDEX ON measured (value) INCLUDE (note);

CREATE TABLE parent (a int, b text);
CREATE TABLE child (c int CHECK (c > 0) NO INHERIT) INHERITS (parent);
INSERT INTO parent VALUES (1, 'parent');
INSERT INTO child VALUES (2, 'child', 3);

CREATE TABLE "Odd schema"."Odd ""table"".x; DROP" ("a "" b" int, "select" text, "%s" int, "é
x" int, UNIQUE ("select"));
INSERT INTO "Odd schema"."Odd ""table"".x; DROP" VALUES (1, 'COPY', 2, 3), (2, E'\\.', 3, 4);
CREATE TABLE "a.b" (a int);
CREATE SCHEMA a;
CREATE TABLE a.b (a int);
INSERT INTO "a.b" VALUES (1);
INSERT INTO a.b VALUES (2), (3);

CREATE TABLE authors (id int PRIMARY KEY, boss int REFERENCES authors DEFERRABLE INITIALLY DEFERRED, name text NOT NULL);
INSERT INTO authors VALUES (1, 2, 'a'), (2, 1, 'b');
CREATE TABLE books (
    id int PRIMARY KEY, author int REFERENCES authors ON DELETE CASCADE, during tstzrange, title text,
    CONSTRAINT alone EXCLUDE USING gist (during WITH &&), CONSTRAINT titled CHECK (title <> '$$') NOT VALID
);
INSERT INTO books VALUES (1, 1, '[2026-01-01,2026-01-02)', 'one'), (2, 2, '[2026-01-02,2026-01-03)', 'two');
CREATE UNIQUE INDEX titles ON books (lower(title) COLLATE "C" DESC NULLS LAST) WHERE author IS NOT NULL;
CREATE STATISTICS both_columns (dependencies) ON author, title FROM books;
ALTER TABLE books ALTER COLUMN title SET STATISTICS 500;
ALTER TABLE books CLUSTER ON books_pkey;
ALTER TABLE books REPLICA IDENTITY USING INDEX books_pkey;
ALTER TABLE books SET (fillfactor = 70);

CREATE VIEW titles_of AS SELECT b.title, a.name FROM books b JOIN authors a ON a.id = b.author WHERE a.name <> E'\\''';
CREATE VIEW of_view WITH (security_barrier) AS SELECT title FROM titles_of WITH CASCADED CHECK OPTION;
CREATE RECURSIVE VIEW bosses (id) AS SELECT 1 UNION ALL SELECT id + 1 FROM bosses WHERE id < 3;
CREATE MATERIALIZED VIEW counted AS SELECT author, count(*) AS books FROM books GROUP BY author;
CREATE UNIQUE INDEX ON counted (author);
CREATE MATERIALIZED VIEW never_filled AS SELECT 1 AS a WITH NO DATA;

CREATE FUNCTION shout(a text, VARIADIC more text[] DEFAULT '{}') RETURNS text LANGUAGE plpgsql STABLE STRICT AS $_$
BEGIN
    -- $$ 'quotes
    RETURN upper(a) || '
COPY public.fake (a) FROM stdin;
1
\.


--
-- ';
END $_$;
CREATE FUNCTION twice(int) RETURNS int LANGUAGE sql IMMUTABLE RETURN $1 * 2;
CREATE PROCEDURE nothing() LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION row_before() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.title := ''changed by a trigger''; RETURN NEW; END';
CREATE TRIGGER changing BEFORE INSERT OR UPDATE OF title ON books FOR EACH ROW WHEN (NEW.id > 0) EXECUTE FUNCTION row_before();
ALTER TABLE books DISABLE TRIGGER changing;
CREATE RULE silently AS ON DELETE TO books DO INSTEAD NOTHING;
CREATE FUNCTION on_ddl() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no DDL while this is on''; END';
CREATE EVENT TRIGGER watching ON ddl_command_start EXECUTE FUNCTION on_ddl();
ALTER EVENT TRIGGER watching DISABLE;
CREATE AGGREGATE joined(text) (sfunc = textcat, stype = text, initcond = '');
CREATE OPERATOR === (leftarg = int, rightarg = int, function = int4eq, commutator = ===);
CREATE OPERATOR CLASS by_int FOR TYPE int USING hash AS OPERATOR 1 = , FUNCTION 1 hashint4(int);
CREATE CAST (pair AS text) WITH INOUT AS ASSIGNMENT;
CREATE TEXT SEARCH DICTIONARY plain (template = simple, stopwords = 'english');
CREATE TEXT SEARCH CONFIGURATION searching (copy = simple);
ALTER TEXT SEARCH CONFIGURATION searching ALTER MAPPING FOR word WITH plain;
CREATE CONVERSION mine FOR 'LATIN1' TO 'UTF8' FROM iso8859_1_to_utf8;

CREATE TABLE guarded (owner name, secret text);
INSERT INTO guarded VALUES ('me', 'x');
ALTER TABLE guarded ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_rows ON guarded FOR SELECT TO PUBLIC USING (owner = current_user);
GRANT SELECT (secret), INSERT ON guarded TO :"role";
ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO :"role";
ALTER TABLE dropped OWNER TO :"role";

CREATE FOREIGN DATA WRAPPER nowhere OPTIONS (debug 'true');
CREATE SERVER elsewhere FOREIGN DATA WRAPPER nowhere OPTIONS (host 'x');
CREATE USER MAPPING FOR PUBLIC SERVER elsewhere OPTIONS (name 'y');
CREATE FOREIGN TABLE far_away (a int) SERVER elsewhere;
CREATE PUBLICATION published FOR TABLE authors (id, name) WHERE (id > 0) WITH (publish = 'insert');

SELECT lo_from_bytea(4711, '\x00ff27270a'), lo_from_bytea(4712, decode(repeat('27', 100000), 'hex'));
COMMENT ON LARGE OBJECT 4711 IS 'large';
COMMENT ON TABLE every_type IS 'every';
COMMENT ON COLUMN every_type.t IS E'a ''comment''\nwith a line';
ANALYZE;
