# The one image of Paddock: control plane, workers and instances. `docker build -t registry.example.com/paddock:0.1.0 .`
# Another base, which needs Python 3.11 or newer: --build-arg BASE=…
ARG BASE=docker.io/library/debian:12.12-slim

FROM ${BASE} AS build
RUN python3 -c "import ensurepip" 2>/dev/null \
    || { apt-get update && apt-get install -y --no-install-recommends python3-venv ca-certificates; }
WORKDIR /src
# Dependencies first: they change seldom. By the lock, each with its hash; all of them are wheels, so nothing is compiled.
COPY requirements.lock ./
RUN python3 -m venv /opt/paddock \
    && /opt/paddock/bin/python -m pip install --no-cache-dir --no-deps --require-hashes --only-binary :all: -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
# Without what only builds: pip, hatchling, and tests that wheels bring along.
RUN /opt/paddock/bin/python -m pip install --no-cache-dir --no-deps --no-build-isolation . \
    && /opt/paddock/bin/python -m pip uninstall --yes hatchling setuptools pip \
    && find /opt/paddock -type d -name tests -prune -exec rm -rf {} + \
    && /opt/paddock/bin/paddock --help >/dev/null

FROM ${BASE}
# tini is PID 1: a Python there never sees a SIGTERM that comes before it has its handlers, and would claim jobs for the
# whole grace of a pod that was taken away in its first second.
RUN missing=""; for program in python3 tini; do command -v $program >/dev/null || missing="$missing $program"; done; \
    if [ -n "$missing" ]; then \
        apt-get update && apt-get install -y --no-install-recommends $missing ca-certificates && rm -rf /var/lib/apt/lists/*; \
    fi
RUN echo "paddock:x:10001:10001::/data:/usr/sbin/nologin" >>/etc/passwd \
    && echo "paddock:x:10001:" >>/etc/group \
    && mkdir /data && chown 10001:10001 /data
COPY --from=build /opt/paddock /opt/paddock
# Nothing is written but below /data and /tmp, so the root may be read-only.
ENV PATH=/opt/paddock/bin:$PATH PADDOCK_DATA=/data HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /data
USER 10001:10001
EXPOSE 8080
ENTRYPOINT ["tini", "--", "paddock"]
CMD ["serve"]
