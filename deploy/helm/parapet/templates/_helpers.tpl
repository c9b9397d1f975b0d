{{- define "parapet.name" -}}
{{- printf "%s" .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "parapet.image" -}}
{{- printf "%sparapet-%s:%s" .root.Values.image.registry .part (.root.Values.image.tag | default .root.Chart.AppVersion) -}}
{{- end -}}

{{- define "parapet.labels" -}}
app.kubernetes.io/name: parapet
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "parapet.selector" -}}
app.kubernetes.io/name: parapet
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "parapet.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{- define "parapet.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end -}}

{{/* How `pool` is found by the frontend: within its own namespace, whatever that is called. */}}
{{- define "parapet.instances" -}}
{{- $service := printf "%s-%s" (include "parapet.name" .root) .pool.name -}}
{{- $scheme := include "parapet.scheme" .pool -}}
{{- if eq .root.Values.model.discovery "kubernetes" -}}
{ kubernetes = { service = "{{ $service }}", port = "{{ $scheme }}" }{{ if eq $scheme "https" }}, scheme = "https"{{ end }} }
{{- else -}}
{ dns = "{{ $service }}", port = 9001{{ if eq $scheme "https" }}, scheme = "https"{{ end }} }
{{- end -}}
{{- end -}}

{{/* What is spoken where these values have `tls`; services have it as their port's name. */}}
{{- define "parapet.scheme" -}}
{{- empty (.tls | default dict).secretName | ternary "http" "https" -}}
{{- end -}}

{{/* A Secret as soon as there are hashes of keys in it: they are worth nothing to who guesses, but nobody else's business. */}}
{{- define "parapet.configKind" -}}
{{- with .Values.frontend -}}
{{- if or .tenants .admin.enabled }}Secret{{ else }}ConfigMap{{ end -}}
{{- end -}}
{{- end -}}

{{/* A value as TOML has it. Helm reads all numbers as floats, and TOML tells them from integers. */}}
{{- define "parapet.toml" -}}
{{- if kindIs "string" . -}}
{{- toJson . -}}
{{- else if kindIs "float64" . -}}
{{- eq . (floor .) | ternary (int64 .) . -}}
{{- else -}}
{{- . -}}
{{- end -}}
{{- end -}}

{{/* What a probe of the chart's own asks for. */}}
{{- define "parapet.httpGet" -}}
{{- $get := dict "path" .path "port" .port -}}
{{- if eq .scheme "https" }}{{ $get = set $get "scheme" "HTTPS" }}{{ end -}}
{{- toJson $get -}}
{{- end -}}

{{/* The probe `of` of the values, or the chart's own. */}}
{{- define "parapet.probe" -}}
{{- index (.values.probes | default dict) .of | default .own | toJson -}}
{{- end -}}

{{/* Whether what needs the resource `kind` of the Prometheus operator is wanted, and can be had. */}}
{{- define "parapet.monitoring" -}}
{{- if eq (toString .wanted) "auto" -}}
{{- if .root.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" .kind) }}true{{ end -}}
{{- else if .wanted -}}
true
{{- end -}}
{{- end -}}
