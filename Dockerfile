# One image for every process of reaper: migrate, beat, both workers, exporter, Flower.
# The command says which; docker-compose.yml shows all of them.

FROM python:3.11-slim-bookworm AS build
RUN python -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
# Dependencies first, beside an empty package: a change of the code does not install them again.
RUN mkdir reaper && touch reaper/__init__.py && pip install '.[exporter,flower]' && pip uninstall --yes reaper
COPY reaper reaper
RUN pip install --no-deps .

FROM python:3.11-slim-bookworm
# A fixed number, so that `runAsNonRoot` and the owners of mounted files can name it.
RUN groupadd --system --gid 10001 reaper \
    && useradd --system --uid 10001 --gid reaper --no-create-home --home-dir /srv/reaper reaper
COPY --from=build /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# Handler modules and a celeryconfig.py are found here. Nothing is written here.
WORKDIR /srv/reaper
USER reaper
# The exec form: Celery is process 1 and gets the TERM itself. A shell in between would swallow it,
# and every stop would end in a kill.
CMD ["celery", "-A", "reaper", "worker", "-Q", "terminal-hooks", "-n", "hooks@%h", "-l", "INFO"]
