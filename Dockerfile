# One image for the scheduler, the local bus and the pretend cloud, whose VMs are agent processes in
# it. The agent on a real VM is not a container: deploy/zen-agent.service.
#
# The base image is named by its digest, which has no default: the same commit gives the same image.
#   docker build --build-arg BASE_DIGEST=sha256:… .
# `docker buildx imagetools inspect python:3.12-slim` prints the digest of today. Where no registry
# is reachable: deploy/rehearse-build.
ARG BASE_IMAGE=docker.io/library/python
ARG BASE_DIGEST
FROM ${BASE_IMAGE}@${BASE_DIGEST} AS build
WORKDIR /app
COPY requirements-runtime.lock ./
# The secret `pip`, if there is one, is a pip.conf: an index of your own, with its password, leaves
# nothing in the image. The path file lets every process find /app, also an agent that the pretend
# cloud starts with an environment of its own.
RUN --mount=type=secret,id=pip,target=/etc/pip.conf,required=false \
    python -m venv /venv \
    && /venv/bin/pip install --no-cache-dir --require-hashes -r requirements-runtime.lock \
    && /venv/bin/pip uninstall --yes --quiet pip setuptools \
    && echo /app >"$(/venv/bin/python -c 'import sysconfig as s; print(s.get_path("purelib"))')/app.pth" \
    && find /venv -name tests -type d -prune -exec rm -rf {} +

FROM ${BASE_IMAGE}@${BASE_DIGEST}
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1
# A new volume takes the owner of the directory that it is mounted over.
RUN useradd --create-home --uid 10001 zen && mkdir -p /data/store /data/keys /data/public && chown -R zen /data
WORKDIR /app
COPY --from=build /venv /venv
COPY . .
USER zen
EXPOSE 8080
HEALTHCHECK --interval=5s --timeout=2s --retries=12 \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/api/v1/ready', timeout=2)"]
ENTRYPOINT ["python", "-m", "cli"]
CMD ["serve"]
