from tests.mappings.conftest import ada, app, bob, clients, config, core, grace

__all__ = ["ada", "app", "bob", "clients", "config", "core", "grace"]
