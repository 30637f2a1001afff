"""The declaration. Everything else is imported when a process needs it."""

from datetime import timedelta

from paddock.capability import Capability, Command, Grant, NavigationEntry, Schedule

GUESTBOOK = Capability(
    name="guestbook",
    title="Guestbook",
    package="guestbook",
    settings="guestbook.settings:GuestbookSettings",
    kinds="guestbook.kinds:worker_kinds",
    internal_kinds="guestbook.kinds:internal_kinds",
    routers=("guestbook.routes:router",),
    pages=("guestbook.pages",),
    navigation=(NavigationEntry("/guestbook", "Guestbook", "groups", "v"),),
    commands=(Command("guestbook", "guestbook.commands:app", "Who signed which book.", "list"),),
    schedules=(Schedule("tidy-guestbook", "tidy_guestbook", timedelta(hours=1)),),
    grants=(Grant("books", "book", "Books", "Which it may sign."),),
)
