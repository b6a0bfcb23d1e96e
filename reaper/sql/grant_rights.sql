-- Grants a role rights on tables and the use of their schemas. Run by `reaper migrate --grant`.
--
-- Safe to repeat: a right that is held is granted again without effect; nothing is taken away.
-- A block of code takes no parameters: they go through a setting of this transaction.
--
-- Parameters
--   role            the grantee, an existing role
--   tables, rights  parallel arrays: a table and SELECT, INSERT, UPDATE or DELETE on it
-- Returns nothing.
-- Locks: the catalogue rows of the tables and schemas. Index: the catalogue's own.
SELECT set_config('reaper.grant', jsonb_build_object(
    'role', %(role)s::text,
    'tables', to_jsonb(%(tables)s::text[]),
    'rights', to_jsonb(%(rights)s::text[])
)::text, true);
DO $grant$
DECLARE
    wanted jsonb := current_setting('reaper.grant');
    grantee text := wanted ->> 'role';
    item record;
BEGIN
    FOR item IN
        SELECT DISTINCT c.relnamespace::regnamespace AS place
        FROM jsonb_array_elements_text(wanted -> 'tables') AS t (name)
        JOIN pg_class AS c ON c.oid = to_regclass(t.name)
    LOOP
        EXECUTE format('GRANT USAGE ON SCHEMA %%s TO %%I', item.place, grantee);
    END LOOP;
    FOR item IN
        SELECT
            to_regclass(t.name) AS place,
            r.name AS privilege
        FROM jsonb_array_elements_text(wanted -> 'tables') WITH ORDINALITY AS t (name, position)
        JOIN jsonb_array_elements_text(wanted -> 'rights') WITH ORDINALITY AS r (name, position)
            USING (position)
    LOOP
        EXECUTE format('GRANT %%s ON TABLE %%s TO %%I', item.privilege, item.place, grantee);
    END LOOP;
    -- An id from a serial column, unlike an identity column, needs the use of its sequence.
    FOR item IN
        SELECT d.objid::regclass AS place
        FROM pg_depend AS d
        JOIN pg_class AS c ON c.oid = d.objid AND c.relkind = 'S'
        WHERE d.refobjid = to_regclass('job_events')
            AND d.deptype = 'a'
    LOOP
        EXECUTE format('GRANT USAGE ON SEQUENCE %%s TO %%I', item.place, grantee);
    END LOOP;
END
$grant$
