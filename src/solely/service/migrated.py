"""The service's own tables in the data database, which are migrated like those of an application."""

MIGRATED = ("service", "solely.service")  # the name in the table of migrations, and the package that has them
