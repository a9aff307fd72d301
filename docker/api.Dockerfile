# The API, the web pages and the migrations; no engine and no torch in here.
# Not yet run: the machines that this was written on have no Docker daemon. `docker compose config` accepts its use.
FROM python:3.11-slim-bookworm

ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /srv/gatekeeper

COPY requirements/ requirements/
RUN pip install --no-deps --requirement requirements/service.txt

COPY pyproject.toml ./
COPY migrations/ migrations/
COPY gatekeeper/ gatekeeper/
# Editable, because the migrations are found beside the package.
RUN pip install --no-deps --editable .

RUN useradd --system --uid 10001 gatekeeper && install --directory --owner gatekeeper /var/lib/gatekeeper
USER gatekeeper
ENV GATEKEEPER_HOME=/var/lib/gatekeeper GATEKEEPER_HOST=0.0.0.0
EXPOSE 8800
CMD ["gatekeeper", "serve"]
