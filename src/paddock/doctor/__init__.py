"""Is everything as it should be? The checks that only the control plane can make, each with what to do.

A check that cannot be made is itself a finding; one that hangs is given up. Nothing here changes anything, except
that the object store gets a small object and loses it again.
"""

from paddock.doctor.examining import server_checks
from paddock.doctor.routes import router

__all__ = ["router", "server_checks"]
