-- What a token may use: one map, from the name of a grant to the names it gives; '*' is all of them, none where it is absent.
-- Which grants there are is declared by capabilities.

ALTER TABLE tokens ADD COLUMN grants jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(grants) = 'object');

UPDATE tokens SET grants = jsonb_build_object(
    'engine_roles', engine_roles, 'engines', engines, 'destinations', destinations, 'databases', databases);

-- The version before has a column for each grant, and may run beside this schema while control planes are replaced. So the
-- columns stay until the next version, and a token made by either is the same to both.
CREATE FUNCTION tokens_keep_grants_alike() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP = 'INSERT' AND NEW.grants = '{}' THEN
        NEW.grants := jsonb_build_object('engine_roles', NEW.engine_roles, 'engines', NEW.engines,
                                         'destinations', NEW.destinations, 'databases', NEW.databases);
    ELSE
        NEW.engine_roles := ARRAY(SELECT jsonb_array_elements_text(NEW.grants -> 'engine_roles'));
        NEW.engines := ARRAY(SELECT jsonb_array_elements_text(NEW.grants -> 'engines'));
        NEW.destinations := ARRAY(SELECT jsonb_array_elements_text(NEW.grants -> 'destinations'));
        NEW.databases := ARRAY(SELECT jsonb_array_elements_text(NEW.grants -> 'databases'));
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER tokens_keep_grants_alike BEFORE INSERT OR UPDATE OF grants ON tokens
    FOR EACH ROW EXECUTE FUNCTION tokens_keep_grants_alike();
