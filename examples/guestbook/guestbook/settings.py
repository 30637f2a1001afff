from paddock.config import Settings
from paddock.config.values import Days


class GuestbookSettings(Settings):
    greeting: str = "Welcome"
    keep_days: Days = 365
