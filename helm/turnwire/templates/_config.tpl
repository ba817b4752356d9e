{{/*
Flatten a map into environment lines below a prefix. Zero and false are settings and stay; null removes one.
Helm reads numbers as floats: whole ones are written without an exponent.
*/}}
{{- define "turnwire.flatten" -}}
{{- $prefix := .prefix -}}
{{- range $key, $value := .map }}
{{- $name := printf "%s%s" $prefix (upper $key) }}
{{- if kindIs "map" $value }}
{{- include "turnwire.flatten" (dict "prefix" (printf "%s__" $name) "map" $value) }}
{{- else if kindIs "slice" $value }}
{{ $name }}: {{ toJson $value | quote }}
{{- else if kindIs "float64" $value }}
{{ $name }}: {{ ternary (printf "%.0f" $value) (toString $value) (eq (floor $value) $value) | quote }}
{{- else if not (kindIs "invalid" $value) }}
{{ $name }}: {{ toString $value | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Settings that follow from other values; `config` may not set them a second time. */}}
{{- define "turnwire.ownSettings" -}}
{{- $values := .root.Values -}}
listen:
  host: 0.0.0.0
  port: {{ include "turnwire.port" . }}
  insecure: {{ $values.insecure }}
  {{- if $values.tls.secretName }}
  tls_cert: /etc/turnwire/tls/tls.crt
  tls_key: /etc/turnwire/tls/tls.key
  {{- if $values.tls.mutual }}
  tls_client_ca: /etc/turnwire/tls/ca.crt
  {{- end }}
  {{- end }}
  {{- if $values.auth.secretName }}
  tokens_file: /etc/turnwire/auth/{{ $values.auth.tokensKey }}
  {{- end }}
drain:
  drain_delay_seconds: {{ .values.drain.delaySeconds }}
  stop_grace_seconds: {{ .values.drain.graceSeconds }}
  termination_grace_seconds: {{ include "turnwire.gracePeriod" . }}
data: /var/lib/turnwire
{{- if eq .name "runtime" }}
{{- range $peer := list "control" "executor" }}
{{ $peer }}:
  target: {{ include "turnwire.target" (dict "root" $.root "name" $peer) }}
  {{- if $values.tls.secretName }}
  tls_ca: /etc/turnwire/tls/ca.crt
  {{- if $values.tls.mutual }}
  tls_cert: /etc/turnwire/tls/tls.crt
  tls_key: /etc/turnwire/tls/tls.key
  {{- end }}
  {{- else }}
  insecure: true
  {{- end }}
  {{- if $values.auth.secretName }}
  token_file: /etc/turnwire/auth/{{ $values.auth.runtimeTokenKey }}
  {{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The whole environment of a component that is no secret, as lines of a config map. */}}
{{- define "turnwire.settings" -}}
{{- $prefix := printf "TURNWIRE_%s_" (upper .name) -}}
{{- $own := include "turnwire.ownSettings" . | fromYaml -}}
{{- $own = include "turnwire.flatten" (dict "prefix" $prefix "map" $own) | fromYaml -}}
{{- $asked := include "turnwire.flatten" (dict "prefix" $prefix "map" .values.config) | fromYaml -}}
{{- range $name, $value := $asked -}}
{{- if hasKey $own $name -}}
{{- fail (printf "%s.config sets %s, which the chart derives from its other values (insecure, tls, auth, drain, persistence): remove it from `config`." $.name $name) -}}
{{- end -}}
{{- end -}}
{{- merge $asked $own | toYaml -}}
{{- end -}}
