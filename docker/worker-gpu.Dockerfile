# A worker for one NVIDIA GPU: vLLM's own image with the service's packages and lm-eval on top.
# Not yet run: the machines that this was written on have no Docker daemon and no GPU.
FROM vllm/vllm-openai:v0.33.0

ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /srv/gatekeeper

# Ranges, not the lock: vLLM's image brings its own versions of most of these, and the engine's must stay.
COPY requirements/ requirements/
RUN python3 -m pip install --requirement requirements/service.in --requirement requirements/worker-gpu.in

COPY pyproject.toml ./
COPY migrations/ migrations/
COPY gatekeeper/ gatekeeper/
COPY workers/ workers/
RUN python3 -m pip install --no-deps --editable .

ENV GATEKEEPER_HOME=/var/lib/gatekeeper GATEKEEPER_DEVICE=cuda HF_HOME=/var/cache/huggingface
# The image starts vLLM by itself; here the worker does that.
ENTRYPOINT []
CMD ["python3", "-m", "celery", "-A", "workers.app", "worker", "-Q", "device.cuda", "--pool=prefork", "-c", "1", "--loglevel=INFO"]
