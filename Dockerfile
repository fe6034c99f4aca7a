# The image of the API, of workers and of RQ's workers. Versions are pinned and hashed by constraints.txt.

FROM python:3.13-slim AS build
WORKDIR /build
COPY pyproject.toml hatch_build.py constraints.txt README.md LICENSE ./
COPY tools/setup.py tools/setup.py
RUN PYTHONPATH=tools python -c "from setup import selected; print(selected(['build', 'server', 'rq', 'models', 'blob', 'otel']))" > requirements.txt \
    && python -m venv /opt/holdfast \
    && /opt/holdfast/bin/pip install --no-cache-dir --no-deps --require-hashes --only-binary :all: -r requirements.txt
COPY src src
RUN /opt/holdfast/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
    && /opt/holdfast/bin/pip check \
    && /opt/holdfast/bin/python -m compileall -q /opt/holdfast/lib

FROM python:3.13-slim
RUN groupadd --gid 10001 holdfast \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/holdfast --shell /usr/sbin/nologin holdfast \
    && install --directory --owner 10001 --group 10001 /var/lib/holdfast /var/lib/holdfast/artifacts
COPY --from=build /opt/holdfast /opt/holdfast
ENV PATH=/opt/holdfast/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOLDFAST_ARTIFACTS=/var/lib/holdfast/artifacts \
    HOLDFAST_LOG_FORMAT=json
WORKDIR /var/lib/holdfast
USER 10001:10001
STOPSIGNAL SIGTERM
ENTRYPOINT ["holdfast"]
CMD ["worker"]
