import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.log import LIMIT, OVERHANG, scrub, scrub_value

SECRET = "S3cr3tV4lue"

# Every way we know a secret to get into a text. {} stands for the secret.
SHAPES = [
    "Authorization: Bearer {}",
    "authorization: bearer {}",
    "Authorization: Basic {}",
    "Proxy-Authorization: Basic {}==",
    "'Authorization': 'Bearer {}'",
    '"Authorization": "Bearer {}"',
    "(b'authorization', b'Basic {}')",
    "curl -H 'Authorization: Bearer {}' http://x",
    "Bearer {}",
    "Bearer%20{}",
    "token pdk_{} refused",
    "pdk_{}",
    "signed with whsec_{}==",
    "whsec_+/{}",
    "the header was paddock_session={}; Path=/",
    "__Host-paddock_session={}",
    "{{'paddock_session': '{}'}}",
    "http://127.0.0.1:8080/sign-in#code={}",
    "?token={}&x=1",
    '{{"token": "{}"}}',
    "access_token={}",
    "session-token: {}",
    "Cookie: paddock={}; other=1",
    "Set-Cookie: paddock={}; HttpOnly",
    "password={}",
    "password = '{}'",
    "password='quoted \\' {} rest'",
    "password: {}",
    "PGPASSWORD={}",
    "host=db password={} user=x",
    "password=a,b;{}",
    "db_password={}",
    "Config(password='{}', user='x')",
    '{{"password":"{}"}}',
    '{{\\"password\\": \\"{}\\"}}',
    'password="unterminated {}',
    "pwd={}",
    "client_secret={}",
    "aws_secret_access_key = {}",
    "api-key: {}",
    "AccountName=x;AccountKey={};EndpointSuffix=y",
    "postgresql://user:{}@host/db",
    "postgresql://user:p@ss{}@host/db",
    "postgresql://user:with/slash{}@host/db",
    "https://{}@github.com/x",
    "amqp://:{}@host",
    "https://b.s3.amazonaws.com/k?X-Amz-Credential={}&X-Amz-Date=1",
    "https://b.s3.amazonaws.com/k?X-Amz-Date=1&X-Amz-Signature={}",
    "https://b.s3.amazonaws.com/k?X-Amz-Security-Token={}&x=1",
    "https://storage.googleapis.com/b/k?X-Goog-Signature={}",
    "https://storage.googleapis.com/b/k?GoogleAccessId=x&Signature={}",
    "https://a.blob.core.windows.net/c/k?sv=1&sig={}&se=2",
    "redirect=https%3A%2F%2Fb%2Fk%3FX-Amz-Signature%3D{}",
    "AWS4-HMAC-SHA256 Credential=x/y, SignedHeaders=host, Signature={}",
    "https://b/k?uploadId={}",
    "nextUri=https://trino/v1/{}",
    '"nextUri": "https://trino/v1/{}"',
    "next_uri: https://trino/{}",
    "ackUri=https://trino/{}",
    "partialCancelUri='https://trino/{}'",
    "GET https://trino:8443/v1/statement/queued/2026_1/{}/1 failed",
    "/v1/statement/executing/2026_1/{}/2",
    "GET https://trino/v1/spooled/ack/{}",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.{}",
    "-----BEGIN RSA PRIVATE KEY-----\nMII{}\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\nMII{} and no end",
]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_secret_does_not_survive(shape: str) -> None:
    text = shape.format(SECRET)

    assert SECRET not in scrub(text)
    assert SECRET not in scrub(f"before {text} after")
    assert SECRET not in scrub(text.upper().replace(SECRET.upper(), SECRET))


@pytest.mark.parametrize(
    "text",
    [
        "job 0198 claimed by worker-7",
        "GET https://control-plane:8080/api/jobs?kind=export 200",
        "https://host:8080/path?mail=a@b",
        'FATAL: password authentication failed for user "paddock"',
        "mismatched input at unexpected token: SELECT",
        "bearer token is missing",
        'WWW-Authenticate: Bearer realm="paddock"',
        "design=1 tokens=5 primary key: id signal=9 keyboard: x",
        "s3://bucket/prefix/part-0001.parquet",
        "relation paddock.jobs does not exist",
    ],
)
def test_what_is_no_secret_stays_readable(text: str) -> None:
    assert scrub(text) == text


def test_the_rest_of_the_sentence_stays() -> None:
    assert scrub("connect to postgresql://u:p@db:5432/x failed") == "connect to postgresql://***@db:5432/x failed"
    assert scrub("https://b/k?sig=abc&se=2026 gave 403") == "https://b/k?sig=***&se=2026 gave 403"


words = st.text(alphabet=st.characters(codec="utf-8"), max_size=60)


@settings(deadline=None)
@given(st.text(max_size=400) | st.text(alphabet="abc:/@=\"'\\ %3dpasswordtokensig", max_size=400))
def test_it_never_raises_and_never_grows_past_its_limit(text: str) -> None:
    assert len(scrub(text, limit=100)) <= 100
    assert len(scrub(text)) <= LIMIT


@settings(deadline=None)
@given(words, st.sampled_from(SHAPES), words)
def test_no_text_around_a_secret_brings_it_back(before: str, shape: str, after: str) -> None:
    assert SECRET not in scrub(f"{before}\n{shape.format(SECRET)}\n{after}")


@settings(deadline=None)
@given(st.integers(0, 60), st.sampled_from(SHAPES))
def test_the_cut_never_goes_through_a_secret(offset: int, shape: str) -> None:
    secret = shape.format(SECRET)
    for edge in (1000, 1000 + OVERHANG):
        text = "pdk_longtokenlongtokenlongtoken " * 20
        text += "x" * (edge - len(text) - offset - 1) + "\n" + secret + " " + "y" * 20000

        kept = scrub(text, limit=1000)

        assert not any(SECRET[:n] in kept for n in range(5, len(SECRET) + 1))
        assert len(kept) <= 1000


REPEATED = [
    *("://", "://a:", "a:@", "eyJ", "bearer ", "authorization: a ", "cookie:", "token'", "%3d", "sig=", "secret_", " "),
    *(
        "password",
        'password="\\',
        "password=\\",
        "\\",
        "nextUri",
        "x-amz-",
        "-----BEGIN ",
        "-----BEGIN PRIVATE KEY-----",
    ),
]


@pytest.mark.parametrize("seed", REPEATED)
def test_no_text_makes_it_slow(seed: str) -> None:
    text = (seed * LIMIT)[: 2 * LIMIT]
    before = time.process_time()

    scrub(text)

    assert time.process_time() - before < 1  # 5 to 50 ms; a quadratic pattern takes minutes


def test_values_under_a_secret_name_are_masked_whole() -> None:
    clean = scrub_value({"next_uri": "x", "token": "x", "job": {"starburst_password": ["x"], "rows": 3}})

    assert clean == {"next_uri": "***", "token": "***", "job": {"starburst_password": "***", "rows": 3}}


def test_names_about_a_secret_are_not_secret() -> None:
    told = {"secret_name": "starburst-credentials", "token_file": "run/token", "token_count": 3, "tokens": 4}

    assert scrub_value(told) == told


def test_values_are_bounded_in_depth_and_width() -> None:
    loop: list[object] = []
    loop.append(loop)

    assert len(str(scrub_value(loop))) < 200
    assert len(scrub_value(list(range(10_000)))) == 200  # type: ignore[arg-type]  # it is a list


def test_a_broken_repr_does_not_lose_the_line() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    assert scrub_value(Broken()) == "<Broken>"
    assert scrub_value(ValueError(f"password={SECRET}")) == "ValueError('password=***')"
    assert scrub_value(b"pdk_abc \xff") == "pdk_*** \\xff"
