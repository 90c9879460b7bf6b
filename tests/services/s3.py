"""An S3 server on the loopback address, which keeps its files in memory: `python
tests/services/s3.py`.

It is moto's. It prints what an S3 client finds it by, and runs until Ctrl-D.
"""

import logging
import os

import boto3
from loopback import ADDRESS, Service, free_port, serve
from moto.server import ThreadedMotoServer

BUCKET = "diagvib"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
}


def s3_server() -> Service:
    """The server with an empty bucket; its `environment` is for its clients."""
    return Service(__file__)


if __name__ == "__main__":
    port = free_port()
    address = f"http://{ADDRESS}:{port}"
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # requests would fill a pipe
    server = ThreadedMotoServer(ADDRESS, port, verbose=False)
    server.start()
    of_client = {**ENVIRONMENT, "AWS_ENDPOINT_URL": address}
    os.environ.update(of_client)
    boto3.client("s3").create_bucket(Bucket=BUCKET)
    serve(environment=of_client)
