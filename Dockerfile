# The service, from a wheel, with machine code inside: it is ready within two seconds of its start.
#   docker build -t alphafair .
#   docker run --rm -v shop:/data alphafair keys create --db /data/shop.db --role admin --name me
#   docker run -v shop:/data -p 8000:8000 alphafair

# Everything that comes from elsewhere is pinned by its hash: `make lock` renews the packages; for the base image take the
# digest that `docker buildx imagetools inspect python:3.11-slim` prints. `make sbom` lists what is inside.

FROM python:3.11-slim@sha256:9c900dea9e8fb7e16277c179b555cc72d29a352dbc33cff48ad5a0412fd5bfc7 AS build
WORKDIR /source
COPY requirements/build.txt requirements/
RUN pip install --no-cache-dir --require-hashes -r requirements/build.txt
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY client client
COPY src src
RUN pip wheel --no-cache-dir --no-build-isolation --no-deps --wheel-dir /wheels ./client .

FROM python:3.11-slim@sha256:9c900dea9e8fb7e16277c179b555cc72d29a352dbc33cff48ad5a0412fd5bfc7
RUN useradd --system --uid 10001 --create-home alphafair && install -d -o alphafair -g alphafair /data /kernels
COPY requirements/service.txt /requirements.txt
RUN pip install --no-cache-dir --require-hashes --only-binary :all: -r /requirements.txt
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --no-deps --no-index /wheels/*.whl && rm -rf /wheels
USER alphafair
ENV NUMBA_CACHE_DIR=/kernels PYTHONUNBUFFERED=1
# Code for the build machine's own processor would not be loaded on another one: take what every one of its kind has.
ENV NUMBA_CPU_NAME=generic
# And what the usual policy needs once it has learned from decisions of others.
RUN alphafair compile && alphafair compile alpha-fair-adaptive+bandit+others
VOLUME /data
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/ready', timeout=2)"]
ENTRYPOINT ["alphafair"]
# Any address but the container's own is refused until there is a key: make one first, as above.
CMD ["serve", "--db", "/data/shop.db", "--host", "0.0.0.0"]
