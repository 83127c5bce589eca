# docker build -t stratiform . && docker run -p 4000:4000 -v ./config.yaml:/etc/stratiform/config.yaml:ro \
#     -e ANTHROPIC_API_KEY stratiform
# (-e: every variable that config.yaml names; stop it with `docker stop --time 70`, or set limits.drain_s below 10). Without a file, in front of one server:
#     docker run -p 4000:4000 stratiform serve --host 0.0.0.0 --upstream URL
# With keys of providers config.yaml needs general_settings.master_key or stratiform.teams, or must say
# stratiform.open_to_network: true, since the container listens beyond itself.
# Inside it is port 4000, which the health check asks, whatever stratiform.port says; outside, `-p PORT:4000`.
# The tag says what it is; the digest, of the index for all architectures, is what is built from. Renew both together:
#     docker buildx imagetools inspect python:3.13-slim
ARG BASE=python:3.13.15-slim-trixie@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b
FROM ${BASE} AS build
ENV UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1 UV_PYTHON_DOWNLOADS=never
RUN pip install --no-cache-dir uv==0.13.9
WORKDIR /app
# The dependencies change less often than the code: a layer of their own.
COPY pyproject.toml uv.lock ./
RUN uv sync --locked --no-dev --all-extras --no-install-project
COPY README.md LICENSE ./
COPY proxy ./proxy
COPY plugins ./plugins
COPY prompts ./prompts
RUN uv sync --locked --no-dev --all-extras --no-editable

FROM ${BASE}
RUN useradd --system --uid 10001 --home-dir /var/lib/stratiform --create-home stratiform
COPY --from=build /app/.venv /app/.venv
ENV PATH=/app/.venv/bin:$PATH PYTHONUNBUFFERED=1
USER 10001
# State (what teams have spent) is kept under this folder, the user's home: mount a volume here to keep it.
WORKDIR /var/lib/stratiform
EXPOSE 4000
HEALTHCHECK --interval=30s --timeout=3s --start-period=10s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:4000/healthz', timeout=2)"]
ENTRYPOINT ["stratiform"]
CMD ["serve", "--host", "0.0.0.0", "--port", "4000", "--config", "/etc/stratiform/config.yaml"]
