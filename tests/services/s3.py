"""An S3 server on the loopback address that keeps its objects in memory: `python
tests/services/s3.py`.

Needs `pip install '.[test]'` (moto). It has one bucket and one user, and checks the signature of
every request. It prints how to reach it, and runs until Ctrl-D.
"""

import contextlib
import importlib.util
import os

from loopback import ADDRESS, Service, serve

BUCKET, REGION = "diagvib", "us-east-1"


def why_not() -> str | None:
    """Why no S3 server can run here; None if one can."""
    missing = [
        name
        for name in ("moto", "flask", "flask_cors", "boto3")
        if importlib.util.find_spec(name) is None
    ]
    return f"{', '.join(missing)} not installed (pip install '.[test]')" if missing else None


class S3(Service):
    """The server. Attributes: port, bucket, key_id and secret (of a user with all rights there)."""

    def __init__(self):
        super().__init__(__file__)

    def objects(self) -> dict[str, bytes]:
        """Everything in the bucket."""
        client = _client("s3", self.port, self.key_id, self.secret)
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        keys = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
        return {key: client.get_object(Bucket=self.bucket, Key=key)["Body"].read() for key in keys}

    def empty(self) -> None:
        """Delete everything in the bucket."""
        client = _client("s3", self.port, self.key_id, self.secret)
        for key in self.objects():
            client.delete_object(Bucket=self.bucket, Key=key)


def serve_s3() -> None:
    """Run the server until standard input ends."""
    from moto import settings
    from moto.server import ThreadedMotoServer

    with (
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stderr(nowhere),
    ):  # its line for each request
        server = ThreadedMotoServer(ADDRESS, 0, verbose=False)
        server.start()
        port = server.get_host_and_port()[1]
        key_id, secret = _make_user(port)
        _client("s3", port, key_id, secret).create_bucket(Bucket=BUCKET)
        settings.INITIAL_NO_AUTH_ACTION_COUNT = 0  # from here on signatures and rights are checked
        serve(port=port, bucket=BUCKET, key_id=key_id, secret=secret)
        os._exit(0)  # nothing to keep, and requests under way would be waited for


def _make_user(port: int) -> tuple[str, str]:
    """A user with all rights in S3; id and secret of the access key."""
    iam = _client("iam", port, "admin", "admin")
    iam.create_user(UserName="group")
    everything = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}'
    iam.put_user_policy(UserName="group", PolicyName="everything", PolicyDocument=everything)
    key = iam.create_access_key(UserName="group")["AccessKey"]
    return key["AccessKeyId"], key["SecretAccessKey"]


def _client(service: str, port: int, key_id: str, secret: str):
    import boto3
    from botocore.config import Config

    return boto3.client(
        service,
        endpoint_url=f"http://{ADDRESS}:{port}",
        region_name=REGION,
        aws_access_key_id=key_id,
        aws_secret_access_key=secret,
        config=Config(proxies={}),
    )


if __name__ == "__main__":
    serve_s3()
