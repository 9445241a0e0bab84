# Railbed for machines that have Docker and are no Debian:
#   docker build -t railbed .
#   docker run --rm -it --privileged -v "$PWD:/work" railbed demo --proxies process
FROM debian:13

# tini ends with the command, and takes what daemons leave. What changes seldom comes first.
RUN apt-get update && apt-get install --yes --no-install-recommends tini
# Proxies are processes here: a Docker Engine inside would be of no use.
ENV RAILBED_CONTAINER=1 RAILBED_NO_DOCKER=1
COPY requirements.lock build-constraints.txt /railbed/
COPY testbed/provision.sh /railbed/testbed/
COPY testbed/host/proved_hosts.csv /railbed/testbed/host/
RUN /railbed/testbed/provision.sh && rm -rf /root/.cache /var/lib/apt/lists/*
COPY . /railbed

WORKDIR /work
ENTRYPOINT ["tini", "--", "/railbed/testbed/host/container.sh"]
