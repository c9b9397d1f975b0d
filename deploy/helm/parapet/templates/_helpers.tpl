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

{{/* How the pool `name` is found by the frontend. */}}
{{- define "parapet.instances" -}}
{{- $service := printf "%s-%s" (include "parapet.name" .root) .pool -}}
{{- if eq .root.Values.model.discovery "kubernetes" -}}
{ kubernetes = { service = "{{ $service }}", namespace = "{{ .root.Release.Namespace }}", port = "http" } }
{{- else -}}
{ dns = "{{ $service }}.{{ .root.Release.Namespace }}.svc", port = 9001 }
{{- end -}}
{{- end -}}
