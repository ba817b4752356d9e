# syntax=docker/dockerfile:1
# One image, three services: the command chooses (turnwire-runtime, turnwire-control, turnwire-executor).
ARG PYTHON=3.11-slim

FROM golang:1.25 AS probe
# The kubelet's own gRPC probe speaks plaintext only; with TLS this program asks from inside the pod.
RUN CGO_ENABLED=0 go install github.com/grpc-ecosystem/grpc-health-probe@v0.4.42

FROM python:${PYTHON} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY pyproject.toml requirements.lock README.md LICENSE NOTICE ./
# Dependencies first: they change less often than the sources.
RUN python -m venv /opt/turnwire \
 && /opt/turnwire/bin/pip install --require-hashes --no-deps -r requirements.lock
COPY services services
COPY clients/python clients/python
RUN python -m venv /opt/build \
 && /opt/build/bin/pip install hatchling==1.33.0 \
 && /opt/build/bin/python -m hatchling build -t wheel -d /tmp/wheel \
 && /opt/turnwire/bin/pip install --no-deps /tmp/wheel/*.whl \
 && /opt/turnwire/bin/python -m compileall -q /opt/turnwire/lib \
 && /opt/turnwire/bin/pip uninstall --yes pip setuptools

FROM python:${PYTHON}
LABEL org.opencontainers.image.title="turnwire" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/turnwire /opt/turnwire
COPY --from=probe /go/bin/grpc-health-probe /usr/local/bin/grpc_health_probe
RUN install -d -o 65532 -g 65532 /var/lib/turnwire
# Nothing is written but the data and /tmp, so the root file system may be read-only.
ENV PATH=/opt/turnwire/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
WORKDIR /var/lib/turnwire
VOLUME /var/lib/turnwire
EXPOSE 50051 50052 50053
STOPSIGNAL SIGTERM
# Exec form: the service is PID 1 and gets SIGTERM itself.
CMD ["turnwire-runtime"]
