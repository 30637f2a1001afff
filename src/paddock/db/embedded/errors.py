"""Why there is no server, each in a sentence that says what to do."""


class EmbeddedPostgresError(Exception):
    code = "embedded_postgres"


class DataFolderInUse(EmbeddedPostgresError):
    code = "data_folder_in_use"


class FolderUnreachable(EmbeddedPostgresError):
    code = "folder_unreachable"


class WrongVersion(EmbeddedPostgresError):
    code = "postgres_wrong_version"
