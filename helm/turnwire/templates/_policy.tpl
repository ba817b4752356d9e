{{/* Egress of a component that has any: names are looked up, and addresses that the values name are reached. */}}
{{- define "turnwire.egress" -}}
- ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
{{- with .values.networkPolicy.egressCidrs }}
- to:
    {{- range . }}
    - ipBlock: {cidr: {{ . | quote }}}
    {{- end }}
  ports:
    - {protocol: TCP, port: 443}
{{- end }}
{{- with .values.networkPolicy.extraEgress }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Peers that call the service from outside the release. */}}
{{- define "turnwire.clients" -}}
- podSelector:
    matchLabels: {turnwire.dev/client: "true"}
{{- with .root.Values.networkPolicy.clients }}
{{ toYaml . }}
{{- end }}
{{- end -}}
