-- Posts the file BODY to MODEL again and again; times are in microseconds.
local file = assert(io.open("BODY", "rb"))
wrk.method = "POST"
wrk.path = "/v2/models/MODEL/infer"
wrk.body = file:read("*a")
wrk.headers["Content-Type"] = "application/octet-stream"
wrk.headers["Inference-Header-Content-Length"] = "HEADER"
function done(summary, latency, requests)
  local e = summary.errors
  local errors = e.connect + e.read + e.write + e.status + e.timeout
  local p99 = latency:percentile(99)
  io.write(string.format("RESULT %d %d %d %d\n", summary.requests, summary.duration, p99, errors))
end
