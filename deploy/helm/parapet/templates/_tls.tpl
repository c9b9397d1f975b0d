{{/* Refuses what does not fit together in `tls`, a listener's values, which stand at `at`. */}}
{{- define "parapet.checkListenerTls" -}}
{{- if and .tls.clientCaSecretName (not .tls.secretName) }}
{{- fail (printf "%s.clientCaSecretName: only who has a certificate asks for one; set %s.secretName" .at .at) }}
{{- end }}
{{- if and .tls.clientCrl (not .tls.clientCaSecretName) }}
{{- fail (printf "%s.clientCrl: ca.crl is looked for in clientCaSecretName, which is empty" .at) }}
{{- end }}
{{- end -}}

{{/* The same for all listeners, and for frontends towards instances. */}}
{{- define "parapet.checkTls" -}}
{{- $frontend := .Values.frontend }}
{{- include "parapet.checkListenerTls" (dict "at" "frontend.tls" "tls" $frontend.tls) }}
{{- include "parapet.checkListenerTls" (dict "at" "frontend.admin.tls" "tls" $frontend.admin.tls) }}
{{- if and $frontend.admin.tls.secretName (not $frontend.admin.enabled) }}
{{- fail "frontend.admin.tls: there is no admin listener; set frontend.admin.enabled" }}
{{- end }}
{{- $plain := and $frontend.admin.enabled (not $frontend.admin.tls.clientCaSecretName) }}
{{- $probes := and $frontend.probes.startup $frontend.probes.liveness $frontend.probes.readiness }}
{{- if and $frontend.tls.clientCaSecretName (not $plain) (not $probes) }}
{{- $fix := "set frontend.admin.enabled, without clientCaSecretName there, or all three of frontend.probes" }}
{{- fail (printf "frontend.tls.clientCaSecretName: probes have no certificate; %s" $fix) }}
{{- end }}
{{- $trust := .Values.model.tls }}
{{- $secure := false }}
{{- range .Values.pools }}
{{- $tls := .tls | default dict }}
{{- include "parapet.checkListenerTls" (dict "at" (printf "pools: tls of %s" .name) "tls" $tls) }}
{{- $secure = or $secure $tls.secretName }}
{{- if and $tls.secretName (not $trust.caSecretName) }}
{{- fail (printf "model.tls.caSecretName: pool %s has tls, and frontends have to know who signs its certificates" .name) }}
{{- end }}
{{- if and $tls.clientCaSecretName (not $trust.secretName) }}
{{- fail (printf "model.tls.secretName: pool %s asks frontends for a certificate" .name) }}
{{- end }}
{{- end }}
{{- if and (or $trust.caSecretName $trust.secretName $trust.crl) (not $secure) }}
{{- fail "model.tls: no pool has tls.secretName" }}
{{- end }}
{{- end -}}

{{/* A volume `name` with the files that `tls`, of a listener or of the model, names; nothing else that is in those Secrets. */}}
{{- define "parapet.tlsVolume" -}}
- name: {{ .name }}
  projected:
    defaultMode: 0440
    sources:
      {{- with .tls.secretName }}
      - secret: { name: {{ . }}, items: [{ key: tls.crt, path: tls.crt }, { key: tls.key, path: tls.key }] }
      {{- end }}
      {{- $crl := "" }}
      {{- if or .tls.clientCrl .tls.crl }}{{ $crl = ", { key: ca.crl, path: ca.crl }" }}{{ end }}
      {{- with .tls.clientCaSecretName | default .tls.caSecretName }}
      - secret: { name: {{ . }}, items: [{ key: ca.crt, path: ca.crt }{{ $crl }}] }
      {{- end }}
{{- end -}}

{{/* `[server.tls]` or `[admin.tls]`, within its table, of the values `tls`; its files are in `folder`. */}}
{{- define "parapet.listenerTls" -}}
tls = { certificate = "{{ .folder }}/tls.crt", key = "{{ .folder }}/tls.key"
{{- if .tls.clientCaSecretName }}, client_ca = "{{ .folder }}/ca.crt"{{ end }}
{{- if .tls.clientCrl }}, client_crl = "{{ .folder }}/ca.crl"{{ end }} }
{{- end -}}

{{/*
`tls` of the pool `name` in the frontend's configuration. Kubernetes finds addresses, which pods get as they start:
certificates are for the service's name there, too.
*/}}
{{- define "parapet.poolTls" -}}
{{- $folder := "/etc/parapet-tls/instances" -}}
tls = { ca = "{{ $folder }}/ca.crt"
{{- with .root.Values.model.tls }}
{{- if .crl }}, crl = "{{ $folder }}/ca.crl"{{ end }}
{{- if .secretName }}, certificate = "{{ $folder }}/tls.crt", key = "{{ $folder }}/tls.key"{{ end }}
{{- end }}
{{- if eq .root.Values.model.discovery "kubernetes" }}, server_name = "{{ include "parapet.name" .root }}-{{ .name }}"{{ end }} }
{{- end -}}

{{/* An endpoint of the ServiceMonitor within TLS: the tlsConfig `given`, or ca.crt of `secret` and the name `name`. */}}
{{- define "parapet.scrapeTls" -}}
scheme: https
{{- $ca := dict "secret" (dict "name" .secret "key" "ca.crt") }}
tlsConfig: {{ .given | default (dict "ca" $ca "serverName" .name) | toJson }}
{{- end -}}
