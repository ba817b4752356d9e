{{/* What values may not say, with the way out; every deployment includes it. */}}
{{- define "turnwire.checks" -}}
{{- if gt (int .values.replicas) 1 -}}
{{- fail (printf "%s.replicas is %d: the data is in SQLite, which is one process per file. Set it to 1; for more work at once, raise the component's limits in `config` instead." .name (int .values.replicas)) -}}
{{- end -}}
{{- if not .root.Values.insecure -}}
{{- if not .root.Values.tls.secretName -}}
{{- fail "tls.secretName is empty: pods listen beyond loopback and refuse to without TLS. Name a secret with tls.crt, tls.key and ca.crt, or say `insecure: true` for a closed test cluster." -}}
{{- end -}}
{{- if not .root.Values.auth.secretName -}}
{{- fail "auth.secretName is empty: pods listen beyond loopback and refuse to without credentials. Name a secret with the tokens file, or say `insecure: true` for a closed test cluster." -}}
{{- end -}}
{{- end -}}
{{- if and .root.Values.tls.mutual (not .root.Values.tls.secretName) -}}
{{- fail "tls.mutual asks for client certificates, but tls.secretName is empty: set both or neither." -}}
{{- end -}}
{{- end -}}

{{/*
Seconds between SIGTERM and SIGKILL. A pod that drains spends, one after the other:
  drain.delaySeconds   NOT_SERVING, still serving, until endpoints have forgotten it
  drain.graceSeconds   running work finishes or is checkpointed
  10                   calls still open are ended by the server
  5                    margin: flush, close files, exit
*/}}
{{- define "turnwire.gracePeriod" -}}
{{- $needed := ceil (addf .values.drain.delaySeconds .values.drain.graceSeconds 10 5) | int -}}
{{- $asked := .values.terminationGracePeriodSeconds -}}
{{- if kindIs "invalid" $asked -}}
{{- $needed -}}
{{- else if lt (int $asked) $needed -}}
{{- fail (printf "%s.terminationGracePeriodSeconds is %d, but draining takes up to %d s (delay %v + grace %v + 10 + 5): leave it out, or lower drain.graceSeconds." .name (int $asked) $needed .values.drain.delaySeconds .values.drain.graceSeconds) -}}
{{- else -}}
{{- int $asked -}}
{{- end -}}
{{- end -}}
