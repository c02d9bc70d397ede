# One image for the scheduler, the local bus and the pretend cloud, whose VMs are agent processes in
# it. The agent on a real VM is not a container: deploy/zen-agent.service.
FROM python:3.12-slim AS build
WORKDIR /app
COPY requirements.lock ./
RUN python -m venv /venv \
    && /venv/bin/pip install --no-cache-dir --require-hashes -r requirements.lock \
    && find /venv -name tests -type d -prune -exec rm -rf {} +

FROM python:3.12-slim
ENV PATH=/venv/bin:$PATH PYTHONPATH=/app PYTHONUNBUFFERED=1
# A new volume takes the owner of the directory that it is mounted over.
RUN useradd --create-home --uid 10001 zen && mkdir -p /data/store /data/keys && chown -R zen /data
WORKDIR /app
COPY --from=build /venv /venv
COPY . .
USER zen
EXPOSE 8080
HEALTHCHECK --interval=5s --timeout=2s --retries=12 \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/api/v1/ready', timeout=2)"]
ENTRYPOINT ["python", "-m", "cli"]
CMD ["serve"]
