"""Is everything as it should be? The checks that only the control plane can make, or can have made, each with what to do.

A check that cannot be made is itself a finding; one that hangs is given up. Nothing here changes anything, except
that the object store and destinations get a small object and lose it again, and that workers run a short job for each
engine and each database.
"""

from paddock.doctor.examining import server_checks
from paddock.doctor.routes import router

__all__ = ["router", "server_checks"]
