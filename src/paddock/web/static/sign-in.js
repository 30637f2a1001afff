// A one-time link carries its code behind '#', which no server and no log ever sees. It is sent by POST.
const code = new URLSearchParams(location.hash.slice(1)).get("code");
if (code) {
  history.replaceState(null, "", location.pathname + location.search);
  const form = document.getElementById("sign-in");
  form.elements.code.value = code;
  form.submit();
}
